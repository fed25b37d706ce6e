// What a worker tells the orchestrator about itself, and the answers; what operators see of it.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/handoff_shape.h"
#include "services/codec/internal.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

constexpr size_t kMaxPathBytes = 4096;  // of a path, with the reason why no other is used

v1::Load LoadToProto(const scheduler::WorkerLoad& load) {
  v1::Load out;
  out.mutable_blocks()->set_total(static_cast<uint64_t>(load.total_blocks));
  out.mutable_blocks()->set_free(static_cast<uint64_t>(load.free_blocks));
  out.mutable_blocks()->set_held(static_cast<uint64_t>(load.held_blocks));
  out.mutable_blocks()->set_cached(static_cast<uint64_t>(load.cached_blocks));
  out.set_running(static_cast<uint64_t>(load.running_requests));
  out.set_waiting(static_cast<uint64_t>(load.queued_requests));
  out.set_queued_tokens(static_cast<uint64_t>(load.queued_tokens));
  out.set_tokens_per_second(load.tokens_per_second);
  out.set_draining(load.draining);
  out.set_invariants_ok(load.invariants_ok);
  out.set_step_age_us(static_cast<uint64_t>(load.step_age_us));
  out.set_step_estimate_us(static_cast<uint64_t>(load.step_estimate_us));
  out.set_claimed_blocks(static_cast<uint64_t>(load.claimed_blocks));
  out.set_groups_made(load.groups_made);
  out.set_groups_failed(load.groups_failed);
  out.set_mean_step_us(static_cast<uint64_t>(load.mean_step_us));
  out.set_steps(static_cast<uint64_t>(load.steps));
  return out;
}

absl::StatusOr<scheduler::WorkerLoad> LoadFrom(const v1::Load& load) {
  scheduler::WorkerLoad out;
  const struct {
    const char* field;
    uint64_t value;
    int64_t* out;
  } counts[] = {{"load.blocks.total", load.blocks().total(), &out.total_blocks},
                {"load.blocks.free", load.blocks().free(), &out.free_blocks},
                {"load.blocks.held", load.blocks().held(), &out.held_blocks},
                {"load.blocks.cached", load.blocks().cached(), &out.cached_blocks},
                {"load.claimed_blocks", load.claimed_blocks(), &out.claimed_blocks},
                {"load.running", load.running(), &out.running_requests},
                {"load.waiting", load.waiting(), &out.queued_requests},
                {"load.queued_tokens", load.queued_tokens(), &out.queued_tokens},
                {"load.step_age_us", load.step_age_us(), &out.step_age_us},
                {"load.step_estimate_us", load.step_estimate_us(), &out.step_estimate_us},
                {"load.mean_step_us", load.mean_step_us(), &out.mean_step_us},
                {"load.steps", load.steps(), &out.steps}};
  for (const auto& count : counts) {
    if (count.value > uint64_t{kMaxTotal}) {
      return Invalid(count.field, absl::StrCat(count.value, " exceeds the limit of 2^50"));
    }
    *count.out = static_cast<int64_t>(count.value);
  }
  if (!(load.tokens_per_second() >= 0) || !std::isfinite(load.tokens_per_second())) {
    return Invalid("load.tokens_per_second",
                   absl::StrCat(load.tokens_per_second(), " is not a rate"));
  }
  out.tokens_per_second = load.tokens_per_second();
  out.draining = load.draining();
  out.groups_made = load.groups_made();
  out.groups_failed = load.groups_failed();
  out.invariants_ok = load.invariants_ok();
  return out;
}

template <typename Repeated>
absl::StatusOr<std::vector<scheduler::HeldRequest>> HeldFrom(const Repeated& held) {
  std::vector<scheduler::HeldRequest> out;
  for (const v1::HeldRequest& one : held) {
    const absl::StatusOr<scheduler::RequestId> id = FromProto(one.id());
    if (!id.ok()) return id.status();
    const auto running_us = DurationFrom("chunk_running_us", one.chunk_running_us());
    if (!running_us.ok()) return running_us.status();
    out.push_back({.id = *id,
                   .epoch = {one.epoch()},
                   .opened = one.opened(),
                   .chunks_done = one.chunks_done(),
                   .chunk_running_us = one.has_chunk_running_us() ? *running_us : -1,
                   .chunks_known = one.chunks_known(),
                   .preemptions = one.preemptions()});
  }
  return out;
}

template <typename Repeated>
void AddHeld(const std::vector<scheduler::HeldRequest>& held, Repeated* out) {
  for (const scheduler::HeldRequest& one : held) {
    v1::HeldRequest* added = out->Add();
    *added->mutable_id() = ToProto(one.id);
    added->set_epoch(one.epoch.value);
    added->set_opened(one.opened);
    added->set_chunks_done(one.chunks_done);
    added->set_chunks_known(one.chunks_known);
    added->set_preemptions(one.preemptions);
    if (one.chunk_running_us >= 0) {
      added->set_chunk_running_us(static_cast<uint64_t>(one.chunk_running_us));
    }
  }
}

template <typename Repeated>
absl::StatusOr<std::vector<scheduler::EndedRequest>> EndedFrom(const Repeated& ended) {
  std::vector<scheduler::EndedRequest> out;
  for (const v1::EndedRequest& one : ended) {
    const absl::StatusOr<scheduler::RequestId> id = FromProto(one.id());
    if (!id.ok()) return id.status();
    const size_t path_bytes = one.handoff().path().size() + one.handoff().transport().size();
    if (path_bytes > kMaxPathBytes) return TooLarge("handoff", path_bytes, kMaxPathBytes);
    const size_t why_bytes = one.ring().why().size();
    if (why_bytes > kMaxPathBytes) return TooLarge("ring.why", why_bytes, kMaxPathBytes);
    out.push_back({.id = *id,
                   .epoch = {one.epoch()},
                   .reason = FromProto(one.reason()),
                   .status = one.has_failure() ? FromProto(one.failure()) : absl::OkStatus(),
                   .engine_failed = one.engine_failed(),
                   .handoff = {.path = one.handoff().path(),
                               .transport = one.handoff().transport(),
                               .staging_buffer = one.handoff().staging_buffer(),
                               .retries = one.handoff().retries(),
                               .commit_unanswered = one.handoff().commit_unanswered()},
                   .ring_broken = one.ring_broken(),
                   .unclaimed = one.unclaimed()});
    if (one.has_ring()) {
      out.back().ring = {.through_host = one.ring().through_host(), .why = one.ring().why()};
    }
  }
  return out;
}

template <typename Repeated>
void AddEnded(const std::vector<scheduler::EndedRequest>& ended, Repeated* out) {
  for (const scheduler::EndedRequest& one : ended) {
    v1::EndedRequest* added = out->Add();
    *added->mutable_id() = ToProto(one.id);
    added->set_epoch(one.epoch.value);
    added->set_reason(ToProto(one.reason));
    if (!one.status.ok()) ToProto(one.status, added->mutable_failure());
    added->set_engine_failed(one.engine_failed);
    added->set_ring_broken(one.ring_broken);
    added->set_unclaimed(one.unclaimed);
    if (one.handoff != scheduler::HandoffPath{}) *added->mutable_handoff() = ToProto(one.handoff);
    if (one.ring.has_value()) *added->mutable_ring() = ToProto(*one.ring);
  }
}

void Fill(const scheduler::WorkerIdentity& identity, v1::RegisterRequest* out) {
  out->ParseFromString(identity.details);
  out->set_role(identity.role == scheduler::Role::kPrefill ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
  out->set_model(identity.model);
  out->set_model_hash(identity.shape.model_hash);
  out->set_endpoint(identity.endpoint);
  out->set_incarnation(identity.incarnation.value);
  *out->mutable_kv() = KvSpecOf(identity.shape);
  out->mutable_kv()->set_num_blocks(static_cast<uint64_t>(identity.total_blocks));
  *out->mutable_layout() = ToProto(identity.shape.layout);
  out->set_block_bytes(static_cast<uint64_t>(identity.shape.BlockBytes()));
  out->set_max_positions(static_cast<uint64_t>(identity.max_positions));
  out->set_node(identity.node);
  out->set_comm_address(identity.comm_address);
  out->set_max_batch_tokens(static_cast<uint64_t>(identity.max_batch_tokens));
  out->set_max_requests(static_cast<uint64_t>(identity.max_requests));
  SetBuild(identity.build, out);
  if (identity.kv_digest != 0) out->set_kv_digest(identity.kv_digest);
  out->set_shares_weights(identity.shares_weights);
}

std::string DetailsOf(const v1::RegisterRequest& request) {
  v1::RegisterRequest details;
  details.set_admin_endpoint(request.admin_endpoint());
  details.set_device(request.device());
  details.set_host(request.host());
  details.set_pid(request.pid());
  return details.SerializeAsString();
}

absl::StatusOr<scheduler::WorkerIdentity> IdentityFrom(const v1::RegisterRequest& request) {
  scheduler::WorkerIdentity out;
  if (request.role() != v1::ROLE_PREFILL && request.role() != v1::ROLE_DECODE) {
    return Invalid("role", absl::StrCat(static_cast<int>(request.role()), " is not a role"));
  }
  out.role =
      request.role() == v1::ROLE_PREFILL ? scheduler::Role::kPrefill : scheduler::Role::kDecode;
  if (request.model().empty()) return Invalid("model", "is empty");
  if (request.endpoint().empty()) return Invalid("endpoint", "is empty");
  if (request.incarnation() == 0) return Invalid("incarnation", "is 0");
  absl::StatusOr<scheduler::HandoffShape> shape = HandoffShapeFrom(
      request.kv(), request.model_hash(), request.layout().tp(), request.block_bytes());
  if (!shape.ok()) return shape.status();
  if (request.kv().num_blocks() < 1) return Invalid("kv.num_blocks", "is 0");
  const std::pair<const char*, uint64_t> counts[] = {
      {"kv.num_blocks", request.kv().num_blocks()},
      {"max_positions", request.max_positions()},
      {"max_batch_tokens", request.max_batch_tokens()},
      {"max_requests", request.max_requests()}};
  for (const auto& [field, count] : counts) {
    if (count > uint64_t{kMaxCount}) return TooLarge(field, count, kMaxCount);
  }
  out.model = request.model();
  out.max_positions = static_cast<int64_t>(request.max_positions());
  out.max_batch_tokens = static_cast<int64_t>(request.max_batch_tokens());
  out.max_requests = static_cast<int64_t>(request.max_requests());
  out.details = DetailsOf(request);
  out.device_kind = request.device().substr(0, request.device().find(':'));
  out.node = request.node().empty() ? request.host() : request.node();
  out.comm_address = request.comm_address();
  out.endpoint = request.endpoint();
  out.incarnation = {request.incarnation()};
  out.shape = *std::move(shape);
  out.total_blocks = static_cast<int64_t>(request.kv().num_blocks());
  out.kv_digest = request.kv_digest();
  out.shares_weights = request.shares_weights();
  absl::StatusOr<scheduler::PeerBuild> build = BuildFrom(request.version(), request.protocol());
  if (!build.ok()) return build.status();
  out.build = *std::move(build);
  return out;
}

}  // namespace

v1::RegisterRequest ToProto(const scheduler::RegisterRequest& request) {
  v1::RegisterRequest out;
  Fill(request.identity, &out);
  AddHeld(request.held, out.mutable_held());
  AddEnded(request.ended, out.mutable_ended());
  *out.mutable_load() = LoadToProto(request.load);
  if (request.seen.number != 0) *out.mutable_seen() = ToProto(request.seen);
  out.set_stream(request.stream);
  if (request.formation.has_value()) *out.mutable_formation() = ToProto(*request.formation);
  return out;
}

absl::StatusOr<scheduler::RegisterRequest> FromProto(const v1::RegisterRequest& request) {
  scheduler::RegisterRequest out;
  absl::StatusOr<scheduler::WorkerIdentity> identity = IdentityFrom(request);
  if (!identity.ok()) return identity.status();
  out.identity = *std::move(identity);
  absl::StatusOr<std::vector<scheduler::HeldRequest>> held = HeldFrom(request.held());
  if (!held.ok()) return held.status();
  out.held = *std::move(held);
  absl::StatusOr<std::vector<scheduler::EndedRequest>> ended = EndedFrom(request.ended());
  if (!ended.ok()) return ended.status();
  out.ended = *std::move(ended);
  absl::StatusOr<scheduler::WorkerLoad> load = LoadFrom(request.load());
  if (!load.ok()) return load.status();
  out.load = *load;
  const absl::StatusOr<scheduler::Generation> seen = FromProto(request.seen());
  if (!seen.ok()) return seen.status();
  out.seen = *seen;
  if (request.stream() == 0) return Invalid("stream", "is 0");
  out.stream = request.stream();
  if (request.has_formation()) {
    const absl::StatusOr<scheduler::FormationTold> told = FromProto(request.formation());
    if (!told.ok()) return told.status();
    out.formation = *told;
  }
  return out;
}

v1::RegisterResponse ToProto(const scheduler::RegisterReply& reply) {
  v1::RegisterResponse out;
  out.set_instance(reply.instance.value);
  out.set_lease_us(static_cast<uint64_t>(reply.lease_us));
  AddHeld(reply.cancel, out.mutable_cancel());
  *out.mutable_generation() = ToProto(reply.generation);
  for (const std::string& peer : reply.peers)
    *out.add_peers() = ToProto(scheduler::PeerOrder{peer});
  out.set_permit_key(reply.permit_key);
  SetBuild(reply.build, &out);
  return out;
}

absl::StatusOr<scheduler::RegisterReply> FromProto(const v1::RegisterResponse& response) {
  if (response.instance() == 0) return Invalid("instance", "is 0");
  const absl::StatusOr<int64_t> lease_us = LeaseFrom("lease_us", response.lease_us());
  if (!lease_us.ok()) return lease_us.status();
  absl::StatusOr<std::vector<scheduler::HeldRequest>> cancel = HeldFrom(response.cancel());
  if (!cancel.ok()) return cancel.status();
  const absl::StatusOr<scheduler::Generation> generation = FromProto(response.generation());
  if (!generation.ok()) return generation.status();
  if (generation->number == 0) return Invalid("generation.number", "is 0");
  std::vector<std::string> peers;
  for (const v1::PeerOrder& order : response.peers()) {
    absl::StatusOr<scheduler::PeerOrder> peer = FromProto(order);
    if (!peer.ok()) return peer.status();
    peers.push_back(std::move(peer->comm_address));
  }
  absl::StatusOr<scheduler::PeerBuild> build = BuildFrom(response.version(), response.protocol());
  if (!build.ok()) return build.status();
  return scheduler::RegisterReply{absl::OkStatus(),   {response.instance()}, *lease_us,
                                  *std::move(cancel), *generation,           std::move(peers),
                                  *std::move(build),  response.permit_key()};
}

v1::ReportRequest ToProto(const scheduler::ReportRequest& request) {
  v1::ReportRequest out;
  out.set_instance(request.instance.value);
  out.set_incarnation(request.incarnation.value);
  out.set_serial(request.serial);
  *out.mutable_load() = LoadToProto(request.load);
  AddHeld(request.held, out.mutable_held());
  AddEnded(request.ended, out.mutable_ended());
  AddHeld(request.gone, out.mutable_gone());
  out.set_full(request.full);
  out.set_held_digest(request.held_digest);
  return out;
}

absl::StatusOr<scheduler::ReportRequest> FromProto(const v1::ReportRequest& request) {
  if (request.instance() == 0) return Invalid("instance", "is 0");
  if (request.incarnation() == 0) return Invalid("incarnation", "is 0");
  scheduler::ReportRequest out;
  absl::StatusOr<scheduler::WorkerLoad> load = LoadFrom(request.load());
  if (!load.ok()) return load.status();
  absl::StatusOr<std::vector<scheduler::HeldRequest>> held = HeldFrom(request.held());
  if (!held.ok()) return held.status();
  absl::StatusOr<std::vector<scheduler::EndedRequest>> ended = EndedFrom(request.ended());
  if (!ended.ok()) return ended.status();
  absl::StatusOr<std::vector<scheduler::HeldRequest>> gone = HeldFrom(request.gone());
  if (!gone.ok()) return gone.status();
  out.gone = *std::move(gone);
  out.full = request.full();
  out.held_digest = request.held_digest();
  out.ended = *std::move(ended);
  out.instance = {request.instance()};
  out.incarnation = {request.incarnation()};
  out.serial = request.serial();
  out.load = *load;
  out.held = *std::move(held);
  return out;
}

absl::StatusOr<scheduler::UnregisterRequest> FromProto(const v1::UnregisterRequest& request) {
  if (request.instance() == 0) return Invalid("instance", "is 0");
  return scheduler::UnregisterRequest{{request.instance()}, {request.incarnation()}};
}

v1::UnregisterRequest ToProto(const scheduler::UnregisterRequest& request) {
  v1::UnregisterRequest out;
  out.set_instance(request.instance.value);
  out.set_incarnation(request.incarnation.value);
  return out;
}

v1::ReportResponse ToProto(const scheduler::ReportReply& reply) {
  v1::ReportResponse out;
  out.set_want_full(reply.want_full);
  out.set_elsewhere_requests(static_cast<uint64_t>(reply.elsewhere.requests));
  out.set_elsewhere_blocks(static_cast<uint64_t>(reply.elsewhere.blocks));
  out.set_elsewhere_sequence_blocks(static_cast<uint64_t>(reply.elsewhere.sequence_blocks));
  return out;
}

absl::StatusOr<scheduler::ReportReply> FromProto(const v1::ReportResponse& response) {
  scheduler::ReportReply reply;
  reply.want_full = response.want_full();
  const auto room = [](uint64_t count) {
    return static_cast<int64_t>(std::min(count, static_cast<uint64_t>(kMaxCount)));
  };
  reply.elsewhere = {room(response.elsewhere_requests()), room(response.elsewhere_blocks()),
                     room(response.elsewhere_sequence_blocks())};
  return reply;
}

v1::InstanceStatus ToProto(const scheduler::InstanceStatus& status) {
  v1::InstanceStatus out;
  out.set_instance(status.instance.value);
  Fill(status.identity, out.mutable_registration());
  *out.mutable_load() = LoadToProto(status.load);
  out.set_since_report_us(static_cast<uint64_t>(status.silent_us));
  out.set_placed_requests(static_cast<uint64_t>(status.placed_requests));
  out.set_queue_s(status.queue_seconds);
  out.set_freeness(status.freeness);
  out.set_uptime_us(static_cast<uint64_t>(status.registered_us));
  out.set_serving(status.placeable);
  out.set_drained(status.drained);
  out.set_heard_by(static_cast<uint64_t>(status.heard_by));
  out.set_missed(status.missed);
  out.set_pace(scheduler::NameOf(status.pace.pace));
  out.set_slowness(status.pace.slowness);
  out.set_pace_peers(static_cast<uint64_t>(status.pace.peers));
  out.set_hangs(status.hangs);
  return out;
}

}  // namespace skein::services
