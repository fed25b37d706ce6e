#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/handoff_shape.h"
#include "services/codec/id_and_epoch.h"
#include "services/codec/internal.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

constexpr uint32_t kMaxSlots = 1 << 20;

// The fields that AcquireStagingBuffer and ReleaseStagingBuffer share.
template <typename Out, typename Message>
absl::StatusOr<Out> ReadAsk(const Message& message) {
  Out out;
  if (absl::Status status = ReadIdAndEpoch(message, &out); !status.ok()) return status;
  if (message.ask() == 0) return Invalid("ask", "is 0");
  out.prefill = {message.prefill_instance()};
  out.ask = message.ask();
  return out;
}

template <typename Blocks>
absl::Status ReadBlocks(const char* field, const Blocks& blocks, std::vector<BlockId>* out) {
  for (const int32_t block : blocks) {
    if (block < 0) return Invalid(field, absl::StrCat(block, " is not a block id"));
    out->push_back({block});
  }
  return absl::OkStatus();
}

}  // namespace

v1::AnnounceRequest ToProto(const scheduler::AnnounceOrder& order) {
  v1::AnnounceRequest out;
  out.set_spec(*order.spec->encoded);
  out.set_epoch(order.epoch.value);
  for (const scheduler::Incarnation writer : order.writers) out.add_writers(writer.value);
  if (order.prompt_of.has_value()) *out.mutable_prompt_of() = ToProto(*order.prompt_of);
  out.set_formation(order.formation);
  out.set_suspect(order.suspect);
  for (const scheduler::Incarnation writer : order.excused) out.add_excused(writer.value);
  return out;
}

absl::StatusOr<scheduler::AnnounceRequest> FromProto(const v1::AnnounceRequest& request) {
  scheduler::AnnounceRequest out;
  if (absl::Status status = ReadSpecAndEpoch(request, &out); !status.ok()) return status;
  for (const uint64_t writer : request.writers()) out.writers.push_back({writer});
  for (const uint64_t writer : request.excused()) out.excused.push_back({writer});
  out.formation = request.formation();
  out.suspect = request.suspect();
  if (!request.has_prompt_of()) return out;
  const absl::StatusOr<scheduler::RequestId> prompt_of = FromProto(request.prompt_of());
  if (!prompt_of.ok()) return Invalid("prompt_of", std::string(prompt_of.status().message()));
  if (!out.writers.empty()) return Invalid("prompt_of", "cannot be given together with writers");
  out.prompt_of = *prompt_of;
  return out;
}

v1::WithdrawRequest ToProto(const scheduler::WithdrawRequest& request) {
  return WithIdAndEpoch<v1::WithdrawRequest>(request);
}

absl::StatusOr<scheduler::WithdrawRequest> FromProto(const v1::WithdrawRequest& request) {
  scheduler::WithdrawRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  return out;
}

v1::TransferOpened ToProto(const scheduler::TransferOpened& opened) {
  return WithIdAndEpoch<v1::TransferOpened>(opened);
}

absl::StatusOr<scheduler::TransferOpened> FromProto(const v1::TransferOpened& opened) {
  scheduler::TransferOpened out;
  if (absl::Status status = ReadIdAndEpoch(opened, &out); !status.ok()) return status;
  return out;
}

v1::OpenTransferRequest ToProto(const scheduler::OpenTransferRequest& request) {
  auto out = WithIdAndEpoch<v1::OpenTransferRequest>(request);
  out.set_model_hash(request.shape.model_hash);
  *out.mutable_kv() = KvSpecOf(request.shape);
  *out.mutable_layout() = ToProto(request.shape.layout);
  out.set_block_bytes(static_cast<uint64_t>(request.shape.BlockBytes()));
  out.set_prefill_instance(request.prefill.value);
  out.set_incarnation(request.incarnation.value);
  return out;
}

absl::StatusOr<scheduler::OpenTransferRequest> FromProto(const v1::OpenTransferRequest& request) {
  scheduler::OpenTransferRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  absl::StatusOr<scheduler::HandoffShape> shape = HandoffShapeFrom(
      request.kv(), request.model_hash(), request.layout().tp(), request.block_bytes());
  if (!shape.ok()) return shape.status();
  out.shape = *std::move(shape);
  out.prefill = {request.prefill_instance()};
  out.incarnation = {request.incarnation()};
  return out;
}

v1::OpenTransferResponse ToProto(const scheduler::OpenTransferReply& reply) {
  v1::OpenTransferResponse out;
  for (const scheduler::BlockId block : reply.blocks) out.add_blocks(block.value);
  for (const scheduler::TransferTarget& other : reply.others) {
    v1::OpenTransferResponse::Target* target = out.add_others();
    for (const scheduler::BlockId block : other.blocks) target->add_blocks(block.value);
    target->set_memory(other.memory);
  }
  out.set_memory(reply.memory);
  out.set_lease_us(static_cast<uint64_t>(reply.lease_us));
  out.set_staging_slots(static_cast<uint32_t>(reply.staging_slots));
  *out.mutable_layout() = ToProto(reply.layout);
  return out;
}

absl::StatusOr<scheduler::OpenTransferReply> FromProto(const v1::OpenTransferResponse& response) {
  scheduler::OpenTransferReply out;
  absl::Status read = ReadBlocks("blocks", response.blocks(), &out.blocks);
  for (const v1::OpenTransferResponse::Target& other : response.others()) {
    scheduler::TransferTarget& target = out.others.emplace_back();
    target.memory = other.memory();
    read.Update(ReadBlocks("others.blocks", other.blocks(), &target.blocks));
  }
  if (!read.ok()) return read;
  const absl::StatusOr<int64_t> lease_us = LeaseFrom("lease_us", response.lease_us());
  if (!lease_us.ok()) return lease_us.status();
  if (response.staging_slots() > kMaxSlots) {
    return TooLarge("staging_slots", response.staging_slots(), kMaxSlots);
  }
  const absl::StatusOr<KvLayout> layout = KvLayoutFrom(response.layout());
  if (!layout.ok()) return layout.status();
  out.layout = *layout;
  out.memory = response.memory();
  out.lease_us = *lease_us;
  out.staging_slots = static_cast<int32_t>(response.staging_slots());
  return out;
}

v1::AcquireStagingBufferRequest ToProto(const scheduler::AcquireStagingBufferRequest& request) {
  auto out = WithIdAndEpoch<v1::AcquireStagingBufferRequest>(request);
  out.set_prefill_instance(request.prefill.value);
  out.set_ask(request.ask);
  return out;
}

absl::StatusOr<scheduler::AcquireStagingBufferRequest> FromProto(
    const v1::AcquireStagingBufferRequest& request) {
  return ReadAsk<scheduler::AcquireStagingBufferRequest>(request);
}

v1::ReleaseStagingBufferRequest ToProto(const scheduler::ReleaseStagingBufferRequest& request) {
  auto out = WithIdAndEpoch<v1::ReleaseStagingBufferRequest>(request);
  out.set_prefill_instance(request.prefill.value);
  out.set_ask(request.ask);
  return out;
}

absl::StatusOr<scheduler::ReleaseStagingBufferRequest> FromProto(
    const v1::ReleaseStagingBufferRequest& request) {
  return ReadAsk<scheduler::ReleaseStagingBufferRequest>(request);
}

v1::TakePartRequest ToProto(const scheduler::TakePartRequest& request) {
  auto out = WithIdAndEpoch<v1::TakePartRequest>(request);
  out.set_prefill_instance(request.prefill.value);
  out.set_part(request.part);
  for (const StagedBlock& block : request.blocks) {
    v1::StagedBlock* added = out.add_blocks();
    added->set_slot(static_cast<uint32_t>(block.slot));
    added->set_layer(static_cast<uint32_t>(block.layer));
    added->set_block(static_cast<uint32_t>(block.global));
  }
  *out.mutable_layout() = ToProto(request.layout);
  return out;
}

absl::StatusOr<scheduler::TakePartRequest> FromProto(const v1::TakePartRequest& request) {
  scheduler::TakePartRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  if (request.part() == 0) return Invalid("part", "is 0");
  for (const v1::StagedBlock& block : request.blocks()) {
    if (block.slot() > kMaxSlots) return TooLarge("blocks.slot", block.slot(), kMaxSlots);
    if (block.layer() > kMaxSlots) return TooLarge("blocks.layer", block.layer(), kMaxSlots);
    if (block.block() > INT32_MAX) return TooLarge("blocks.block", block.block(), INT32_MAX);
    out.blocks.push_back({static_cast<int32_t>(block.slot()), static_cast<int32_t>(block.layer()),
                          static_cast<int32_t>(block.block())});
  }
  const absl::StatusOr<KvLayout> layout = KvLayoutFrom(request.layout());
  if (!layout.ok()) return layout.status();
  out.layout = *layout;
  out.prefill = {request.prefill_instance()};
  out.part = request.part();
  return out;
}

v1::RenewRequest ToProto(const scheduler::RenewRequest& request) {
  auto out = WithIdAndEpoch<v1::RenewRequest>(request);
  out.set_prefill_instance(request.prefill.value);
  return out;
}

absl::StatusOr<scheduler::RenewRequest> FromProto(const v1::RenewRequest& request) {
  scheduler::RenewRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  out.prefill = {request.prefill_instance()};
  return out;
}

v1::RenewResponse ToProto(const scheduler::RenewReply& reply) {
  v1::RenewResponse out;
  out.set_lease_us(static_cast<uint64_t>(reply.lease_us));
  return out;
}

absl::StatusOr<scheduler::RenewReply> FromProto(const v1::RenewResponse& response) {
  const absl::StatusOr<int64_t> lease_us = LeaseFrom("lease_us", response.lease_us());
  if (!lease_us.ok()) return lease_us.status();
  return scheduler::RenewReply{absl::OkStatus(), *lease_us};
}

v1::CommitRequest ToProto(const scheduler::CommitRequest& request) {
  auto out = WithIdAndEpoch<v1::CommitRequest>(request);
  for (const int64_t bytes : request.bytes_per_layer) {
    out.add_layer_bytes(static_cast<uint64_t>(bytes));
  }
  if (request.has_token) {
    out.set_first_token(request.token);
    out.set_first_sampled(request.payload);
  }
  out.set_prompt_logprobs(request.prompt_logprobs);
  out.set_prefill_instance(request.prefill.value);
  *out.mutable_times() = ToProto(request.times);
  return out;
}

absl::StatusOr<scheduler::CommitRequest> FromProto(const v1::CommitRequest& request) {
  scheduler::CommitRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  if (request.first_token() < 0) {
    return Invalid("first_token", absl::StrCat(request.first_token(), " is not a token id"));
  }
  for (const uint64_t bytes : request.layer_bytes()) {
    if (bytes > uint64_t{kMaxTotal}) {
      return Invalid("layer_bytes", absl::StrCat(bytes, " exceeds the limit of 2^50"));
    }
    out.bytes_per_layer.push_back(static_cast<int64_t>(bytes));
  }
  out.has_token = request.has_first_token();
  out.token = request.first_token();
  out.payload = request.first_sampled();
  out.prompt_logprobs = request.prompt_logprobs();
  out.prefill = {request.prefill_instance()};
  const absl::StatusOr<scheduler::PrefillTimes> times = FromProto(request.times());
  if (!times.ok()) return times.status();
  out.times = *times;
  return out;
}

v1::PrefillTimes ToProto(const scheduler::PrefillTimes& times) {
  v1::PrefillTimes out;
  out.set_queue_us(static_cast<uint64_t>(times.queue_us));
  out.set_prefill_us(static_cast<uint64_t>(times.prefill_us));
  out.set_handoff_us(static_cast<uint64_t>(times.handoff_us));
  return out;
}

absl::StatusOr<scheduler::PrefillTimes> FromProto(const v1::PrefillTimes& times) {
  scheduler::PrefillTimes out;
  const struct {
    const char* field;
    uint64_t value;
    int64_t* out;
  } durations[] = {{"times.queue_us", times.queue_us(), &out.queue_us},
                   {"times.prefill_us", times.prefill_us(), &out.prefill_us},
                   {"times.handoff_us", times.handoff_us(), &out.handoff_us}};
  for (const auto& duration : durations) {
    const absl::StatusOr<int64_t> value = DurationFrom(duration.field, duration.value);
    if (!value.ok()) return value.status();
    *duration.out = *value;
  }
  return out;
}

v1::AbortRequest ToProto(const scheduler::AbortRequest& request) {
  auto out = WithIdAndEpoch<v1::AbortRequest>(request);
  ToProto(request.reason, out.mutable_failure());
  out.set_prefill_instance(request.prefill.value);
  out.set_incarnation(request.incarnation.value);
  return out;
}

absl::StatusOr<scheduler::AbortRequest> FromProto(const v1::AbortRequest& request) {
  scheduler::AbortRequest out;
  if (absl::Status status = ReadIdAndEpoch(request, &out); !status.ok()) return status;
  out.reason = FromProto(request.failure());
  out.prefill = {request.prefill_instance()};
  out.incarnation = {request.incarnation()};
  return out;
}

}  // namespace skein::services
