// What the orchestrator tells routers about the plans of their requests; its orders to instances
// (plans, decode places, starts, cancels), and their answers.
#include <bit>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/id_and_epoch.h"
#include "services/codec/internal.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

// Far above real plans.
constexpr int kMaxMembers = 4096;
constexpr int kMaxChunks = 65536;

absl::Status ReadMembers(const v1::AssignRequest& request, scheduler::AssignRequest* out) {
  if (request.members_size() > kMaxMembers) {
    return TooLarge("members", static_cast<uint64_t>(request.members_size()), kMaxMembers);
  }
  for (const v1::PlanMember& member : request.members()) {
    if (member.instance() == 0) return Invalid("members.instance", "is 0");
    out->members.push_back(
        {{member.instance()}, {member.incarnation()}, member.endpoint(), member.comm_address()});
  }
  return absl::OkStatus();
}

absl::StatusOr<scheduler::PlanChunk> ChunkFrom(const v1::PlanChunk& chunk, int members) {
  if (chunk.tokens() == 0) return Invalid("chunks.tokens", "is 0");
  if (chunk.tokens() > uint64_t{kMaxCount}) {
    return TooLarge("chunks.tokens", chunk.tokens(), kMaxCount);
  }
  if (chunk.members().empty()) return Invalid("chunks.members", "is empty");
  if (chunk.members_size() > members)
    return Invalid("chunks.members", "has more entries than members");
  for (const uint32_t member : chunk.members()) {
    if (member >= static_cast<uint32_t>(members)) {
      return Invalid("chunks.members", absl::StrCat(member, " is not the index of a member"));
    }
  }
  const absl::StatusOr<int64_t> estimated_us =
      DurationFrom("chunks.estimated_us", chunk.estimated_us());
  if (!estimated_us.ok()) return estimated_us.status();
  const uint32_t tp = chunk.tp() == 0 ? 1 : chunk.tp();
  if (!std::has_single_bit(tp) || static_cast<uint32_t>(chunk.members_size()) % tp != 0) {
    return Invalid("chunks.tp", absl::StrCat(tp, " is not a power of two that divides ",
                                             chunk.members_size(), " members"));
  }
  return scheduler::PlanChunk{static_cast<int64_t>(chunk.tokens()),
                              {chunk.members().begin(), chunk.members().end()},
                              *estimated_us,
                              tp};
}

absl::Status ReadChunks(const v1::AssignRequest& request, scheduler::AssignRequest* out) {
  if (request.chunks_size() > kMaxChunks) {
    return TooLarge("chunks", static_cast<uint64_t>(request.chunks_size()), kMaxChunks);
  }
  if (request.members().empty() != request.chunks().empty()) {
    return Invalid("chunks", "chunks and members must be given together");
  }
  if (request.from_chunk() > static_cast<uint32_t>(request.chunks_size())) {
    return Invalid("from_chunk", absl::StrCat(request.from_chunk(), " is past the last chunk"));
  }
  for (const v1::PlanChunk& chunk : request.chunks()) {
    absl::StatusOr<scheduler::PlanChunk> read = ChunkFrom(chunk, request.members_size());
    if (!read.ok()) return read.status();
    out->chunks.push_back(*std::move(read));
  }
  out->from_chunk = request.from_chunk();
  return absl::OkStatus();
}

void Fill(const scheduler::Placed& placed, v1::DecodePlace* out) {
  out->set_epoch(placed.epoch.value);
  out->set_decode_instance(placed.decode.value);
  out->set_decode_endpoint(placed.endpoint);
  if (!placed.permit.empty()) out->set_permit(placed.permit);
}

absl::StatusOr<scheduler::Placed> PlacedFrom(const v1::DecodePlace& place) {
  if (place.decode_endpoint().empty()) return Invalid("placed.decode_endpoint", "is empty");
  return scheduler::Placed{.epoch = {place.epoch()},
                           .decode = {place.decode_instance()},
                           .endpoint = place.decode_endpoint(),
                           .permit = place.permit()};
}

absl::Status CheckPlace(const v1::PlanUpdate::Placed& place, const char* field) {
  if (place.decode_endpoint().empty()) {
    return Invalid(absl::StrCat(field, ".decode_endpoint"), "is empty");
  }
  if (place.decode_incarnation() == 0) {
    return Invalid(absl::StrCat(field, ".decode_incarnation"), "is 0");
  }
  return absl::OkStatus();
}

}  // namespace

v1::PlanUpdate ToProto(const scheduler::PlanUpdate& update) {
  v1::PlanUpdate out;
  if (const auto* planned = std::get_if<scheduler::Planned>(&update)) {
    out.set_epoch(planned->epoch.value);
    out.mutable_planned()->set_prefill_instance(planned->prefill.value);
    out.mutable_planned()->set_decided_us(static_cast<uint64_t>(planned->decided_us));
    ToProto(planned->failed_engines, out.mutable_failed_engines());
    if (!planned->decode_endpoint.empty()) {
      v1::PlanUpdate::Placed* announced = out.mutable_planned()->mutable_announced();
      announced->set_decode_instance(planned->decode.value);
      announced->set_decode_endpoint(planned->decode_endpoint);
      announced->set_decode_incarnation(planned->decode_incarnation.value);
    }
  } else if (const auto* placed = std::get_if<scheduler::Placed>(&update)) {
    out.set_epoch(placed->epoch.value);
    out.mutable_placed()->set_decode_instance(placed->decode.value);
    out.mutable_placed()->set_decode_endpoint(placed->endpoint);
    out.mutable_placed()->set_decode_incarnation(placed->incarnation.value);
  } else if (const auto* accepted = std::get_if<scheduler::Accepted>(&update)) {
    out.mutable_accepted();
    ToProto(accepted->failed_engines, out.mutable_failed_engines());
  } else if (std::holds_alternative<scheduler::PlanEnded>(update)) {
    out.mutable_ended();
  } else {
    const auto& failure = std::get<scheduler::Failed>(update);
    ToProto(failure.status, out.mutable_failed());
    ToProto(failure.failed_engines, out.mutable_failed_engines());
    out.set_condemned(failure.condemned);
  }
  return out;
}

absl::StatusOr<scheduler::PlanUpdate> FromProto(const v1::PlanUpdate& update) {
  absl::StatusOr<scheduler::FailedEngines> failed = FailedEnginesFrom(update.failed_engines());
  if (!failed.ok()) return failed.status();
  switch (update.update_case()) {
    case v1::PlanUpdate::kPlanned: {
      const auto decided_us = DurationFrom("planned.decided_us", update.planned().decided_us());
      if (!decided_us.ok()) return decided_us.status();
      const v1::PlanUpdate::Placed& announced = update.planned().announced();
      if (update.planned().has_announced()) {
        absl::Status status = CheckPlace(announced, "planned.announced");
        if (!status.ok()) return status;
      }
      return scheduler::Planned{{update.epoch()},
                                {update.planned().prefill_instance()},
                                *decided_us,
                                *std::move(failed),
                                {announced.decode_instance()},
                                announced.decode_endpoint(),
                                {announced.decode_incarnation()}};
    }
    case v1::PlanUpdate::kPlaced: {
      const v1::PlanUpdate::Placed& placed = update.placed();
      if (absl::Status status = CheckPlace(placed, "placed"); !status.ok()) return status;
      return scheduler::Placed{{update.epoch()},
                               {placed.decode_instance()},
                               placed.decode_endpoint(),
                               {placed.decode_incarnation()}};
    }
    case v1::PlanUpdate::kAccepted:
      return scheduler::Accepted{*std::move(failed)};
    case v1::PlanUpdate::kEnded:
      return scheduler::PlanEnded{};
    case v1::PlanUpdate::kFailed:
      return scheduler::Failed{FromProto(update.failed()), *std::move(failed), update.condemned()};
    default:
      return Invalid("update", "is missing");
  }
}

v1::AssignRequest ToProto(const scheduler::AssignOrder& order) {
  v1::AssignRequest out;
  out.set_spec(*order.spec->encoded);
  out.set_epoch(order.epoch.value);
  out.set_sequence(order.sequence.value);
  for (const scheduler::PlanMember& member : order.members) {
    v1::PlanMember* added = out.add_members();
    added->set_instance(member.instance.value);
    added->set_incarnation(member.incarnation.value);
    added->set_endpoint(member.endpoint);
    added->set_comm_address(member.comm_address);
  }
  for (const scheduler::PlanChunk& chunk : order.chunks) {
    v1::PlanChunk* added = out.add_chunks();
    added->set_tokens(static_cast<uint64_t>(chunk.tokens));
    added->mutable_members()->Add(chunk.members.begin(), chunk.members.end());
    added->set_estimated_us(static_cast<uint64_t>(chunk.estimated_us));
    if (chunk.tp > 1) added->set_tp(chunk.tp);
  }
  out.set_from_chunk(order.from_chunk);
  out.set_suspect(order.suspect);
  if (order.placed.has_value()) Fill(*order.placed, out.mutable_placed());
  return out;
}

absl::StatusOr<scheduler::AssignRequest> FromProto(const v1::AssignRequest& request) {
  scheduler::AssignRequest out;
  if (absl::Status status = ReadSpecAndEpoch(request, &out); !status.ok()) return status;
  if (request.sequence() == 0) return Invalid("sequence", "is 0");
  out.sequence = {request.sequence()};
  out.suspect = request.suspect();
  if (absl::Status status = ReadMembers(request, &out); !status.ok()) return status;
  if (absl::Status status = ReadChunks(request, &out); !status.ok()) return status;
  if (request.has_placed()) {
    absl::StatusOr<scheduler::Placed> placed = PlacedFrom(request.placed());
    if (!placed.ok()) return placed.status();
    out.placed = *std::move(placed);
  }
  return out;
}

v1::StartRequest ToProto(const scheduler::StartRequest& request) {
  auto out = WithIdAndEpoch<v1::StartRequest>(request);
  Fill(request.placed, out.mutable_placed());
  return out;
}

absl::StatusOr<scheduler::StartRequest> FromProto(const v1::StartRequest& request) {
  scheduler::StartRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  absl::StatusOr<scheduler::Placed> placed = PlacedFrom(request.placed());
  if (!placed.ok()) return placed.status();
  out.placed = *std::move(placed);
  return out;
}

v1::CancelRequest ToProto(const scheduler::CancelRequest& request) {
  auto out = WithIdAndEpoch<v1::CancelRequest>(request);
  out.set_why(request.why);
  out.set_unless_claimed(request.unless_claimed);
  return out;
}

absl::StatusOr<scheduler::CancelRequest> FromProto(const v1::CancelRequest& request) {
  scheduler::CancelRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  out.why = request.why();
  out.unless_claimed = request.unless_claimed();
  return out;
}

v1::PeerOrder ToProto(const scheduler::PeerOrder& order) {
  v1::PeerOrder out;
  out.set_comm_address(order.comm_address);
  return out;
}

absl::StatusOr<scheduler::PeerOrder> FromProto(const v1::PeerOrder& order) {
  if (order.comm_address().empty()) return Invalid("comm_address", "is empty");
  return scheduler::PeerOrder{order.comm_address()};
}

v1::GroupOrder ToProto(const scheduler::GroupOrder& order) {
  v1::GroupOrder out;
  out.set_generation(order.generation);
  out.set_index(static_cast<uint32_t>(order.index));
  for (const scheduler::GroupMember& member : order.members) {
    v1::GroupMember* added = out.add_members();
    added->set_instance(member.instance.value);
    added->set_comm_address(member.comm_address);
  }
  return out;
}

absl::StatusOr<scheduler::GroupOrder> FromProto(const v1::GroupOrder& order) {
  if (order.generation() == 0) return Invalid("generation", "is 0");
  if (order.members_size() > kMaxMembers) {
    return TooLarge("members", static_cast<uint64_t>(order.members_size()), kMaxMembers);
  }
  scheduler::GroupOrder out{
      .generation = order.generation(), .index = order.index(), .members = {}};
  for (const v1::GroupMember& member : order.members()) {
    if (member.comm_address().empty()) return Invalid("members.comm_address", "is empty");
    if (!out.members.empty() && member.instance() <= out.members.back().instance.value) {
      return Invalid("members.instance", "must ascend");
    }
    out.members.push_back({{member.instance()}, member.comm_address()});
  }
  if (out.index >= out.members.size()) {
    return Invalid("index", absl::StrCat(out.index, " of ", out.members.size(), " members"));
  }
  return out;
}

v1::DrainOrder ToProto(const scheduler::DrainOrder& order) {
  v1::DrainOrder out;
  out.set_drain(order.drain);
  return out;
}

absl::StatusOr<scheduler::DrainOrder> FromProto(const v1::DrainOrder& order) {
  return scheduler::DrainOrder{order.drain()};
}

v1::AssignResult ToProto(const scheduler::AssignReplied& replied) {
  auto out = WithIdAndEpoch<v1::AssignResult>(replied);
  out.set_sequence(replied.sequence.value);
  if (!replied.reply.status.ok()) ToProto(replied.reply.status, out.mutable_failure());
  return out;
}

absl::StatusOr<scheduler::AssignReplied> FromProto(const v1::AssignResult& result) {
  scheduler::AssignReplied out;
  if (absl::Status status = ReadIdAndEpoch(result, &out); !status.ok()) return status;
  out.sequence = {result.sequence()};
  if (result.has_failure()) out.reply.status = FromProto(result.failure());
  return out;
}

v1::PlaceDecodeRequest ToProto(const scheduler::PlaceDecodeRequest& request) {
  v1::PlaceDecodeRequest out;
  out.set_instance(request.instance.value);
  out.set_incarnation(request.incarnation.value);
  *out.mutable_id() = ToProto(request.id);
  out.set_epoch(request.epoch.value);
  out.set_refused_by(request.refused_by.value);
  if (!request.why.ok()) ToProto(request.why, out.mutable_failure());
  return out;
}

absl::StatusOr<scheduler::PlaceDecodeRequest> FromProto(const v1::PlaceDecodeRequest& request) {
  const absl::StatusOr<scheduler::RequestId> id = FromProto(request.id());
  if (!id.ok()) return id.status();
  if (request.instance() == 0) return Invalid("instance", "is 0");
  if (request.epoch() == 0) return Invalid("epoch", "is 0");
  if ((request.refused_by() != 0) != request.has_failure()) {
    return Invalid("failure", "requires refused_by");
  }
  return scheduler::PlaceDecodeRequest{
      .instance = {request.instance()},
      .incarnation = {request.incarnation()},
      .id = *id,
      .epoch = {request.epoch()},
      .refused_by = {request.refused_by()},
      .why = request.has_failure() ? FromProto(request.failure()) : absl::OkStatus()};
}

v1::PlaceDecodeResponse ToProto(const scheduler::AnswerPlaceDecode& answer) {
  auto out = WithIdAndEpoch<v1::PlaceDecodeResponse>(answer);
  if (answer.reply.status.ok()) {
    Fill(answer.reply.placed, out.mutable_placed());
  } else {
    ToProto(answer.reply.status, out.mutable_failure());
  }
  return out;
}

absl::StatusOr<scheduler::PlaceDecodeReplied> FromProto(const v1::PlaceDecodeResponse& response) {
  scheduler::PlaceDecodeReplied out;
  if (absl::Status status = ReadIdAndEpoch(response, &out); !status.ok()) return status;
  if (response.has_failure()) {
    out.reply.status = FromProto(response.failure());
    return out;
  }
  absl::StatusOr<scheduler::Placed> placed = PlacedFrom(response.placed());
  if (!placed.ok()) return placed.status();
  out.reply.placed = *std::move(placed);
  return out;
}

}  // namespace skein::services
