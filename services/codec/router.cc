// Messages of the router's stream.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/internal.h"

namespace skein::services {
namespace {

using How = scheduler::RouterEnd::How;

absl::StatusOr<How> HowFrom(v1::RouterEnded::How how) {
  switch (how) {
    case v1::RouterEnded::HOW_STOP_TOKEN:
      return How::kStopToken;
    case v1::RouterEnded::HOW_STOP_STRING:
      return How::kStopString;
    case v1::RouterEnded::HOW_MAX_TOKENS:
      return How::kMaxTokens;
    case v1::RouterEnded::HOW_CLIENT_GONE:
      return How::kClientGone;
    case v1::RouterEnded::HOW_FAILED:
      return How::kFailed;
    case v1::RouterEnded::HOW_RESUMED:
      return How::kResumed;
    default:
      return Invalid("ended.how", absl::StrCat(static_cast<int>(how), " is unknown"));
  }
}

v1::RouterEnded::How ToProto(How how) {
  switch (how) {
    case How::kStopToken:
      return v1::RouterEnded::HOW_STOP_TOKEN;
    case How::kStopString:
      return v1::RouterEnded::HOW_STOP_STRING;
    case How::kMaxTokens:
      return v1::RouterEnded::HOW_MAX_TOKENS;
    case How::kClientGone:
      return v1::RouterEnded::HOW_CLIENT_GONE;
    case How::kResumed:
      return v1::RouterEnded::HOW_RESUMED;
    case How::kFailed:
      break;
  }
  return v1::RouterEnded::HOW_FAILED;
}

absl::StatusOr<scheduler::RouterIdentity> IdentityFrom(const v1::RouterIdentity& identity) {
  if (identity.router() == 0) return Invalid("identity.router", "is 0");
  if (identity.endpoint().empty()) return Invalid("identity.endpoint", "is empty");
  v1::RouterIdentity details;
  details.set_admin_endpoint(identity.admin_endpoint());
  details.set_pid(identity.pid());
  absl::StatusOr<scheduler::PeerBuild> build = BuildFrom(identity.version(), identity.protocol());
  if (!build.ok()) return build.status();
  return scheduler::RouterIdentity{identity.router(), identity.endpoint(), identity.host(),
                                   details.SerializeAsString(), *std::move(build)};
}

// That a submission asks for.
absl::StatusOr<scheduler::PrefillShape> ShapeFrom(const v1::SubmitRequest& submit) {
  const scheduler::PrefillShape shape{.instances = submit.plan_instances(),
                                      .tp = std::max<uint32_t>(submit.plan_tp(), 1)};
  const bool asked = shape.asked();
  if (asked &&
      (!std::has_single_bit(shape.instances) || shape.instances > scheduler::kPrefillShapeMax)) {
    return Invalid("submit.plan_instances",
                   absl::StrCat(shape.instances, " is not a power of two up to ",
                                scheduler::kPrefillShapeMax));
  }
  if (!std::has_single_bit(shape.tp) || shape.tp > std::max<uint32_t>(shape.instances, 1)) {
    return Invalid(
        "submit.plan_tp",
        absl::StrCat(shape.tp, " is not a power of two up to plan_instances, ", shape.instances));
  }
  return shape;
}

absl::StatusOr<scheduler::RouterRequest> RequestFrom(const v1::RouterRequest& request) {
  const absl::StatusOr<scheduler::RequestId> id = FromProto(request.id());
  if (!id.ok()) return id.status();
  return scheduler::RouterRequest{.id = *id,
                                  .epoch = {request.epoch()},
                                  .placed = request.placed(),
                                  .decode = {request.decode_instance()},
                                  .streams = request.streams()};
}

absl::Status ProcessesFrom(const char* field, const RepeatedIds& incarnations,
                           std::vector<scheduler::Incarnation>* out) {
  constexpr int kMost = 1 << 16;
  if (incarnations.size() > kMost) {
    return TooLarge(field, static_cast<uint64_t>(incarnations.size()), kMost);
  }
  for (const uint64_t incarnation : incarnations) {
    if (incarnation == 0) return Invalid(field, "names incarnation 0");
    out->push_back({incarnation});
  }
  return absl::OkStatus();
}

}  // namespace

void ToProto(const scheduler::FailedEngines& engines, RepeatedIds* out) {
  for (const scheduler::Incarnation engine : engines) out->Add(engine.value);
}

absl::StatusOr<scheduler::FailedEngines> FailedEnginesFrom(const RepeatedIds& engines) {
  constexpr int kMost = 16;
  if (engines.size() > kMost) {
    return TooLarge("failed_engines", static_cast<uint64_t>(engines.size()), kMost);
  }
  scheduler::FailedEngines out;
  for (const uint64_t engine : engines) {
    if (engine == 0) return Invalid("failed_engines", "names incarnation 0");
    out.push_back({engine});
  }
  return out;
}

absl::StatusOr<scheduler::PeerBuild> BuildFrom(const std::string& version,
                                               const v1::ProtocolRange& protocol) {
  if (protocol.oldest() > protocol.newest()) {
    return Invalid("protocol.oldest",
                   absl::StrCat(protocol.oldest(), " is above the newest, ", protocol.newest()));
  }
  return scheduler::PeerBuild{version, {protocol.oldest(), protocol.newest()}};
}

v1::Generation ToProto(const scheduler::Generation& generation) {
  v1::Generation out;
  out.set_number(generation.number);
  out.set_orchestrator(generation.orchestrator.value);
  return out;
}

// The next generation must also be representable.
absl::StatusOr<scheduler::Generation> FromProto(const v1::Generation& generation) {
  if (generation.number() >= scheduler::kGenerationMax) {
    return Invalid("generation.number",
                   absl::StrCat(generation.number(), " exceeds the limit of 2^23 - 2"));
  }
  return scheduler::Generation{generation.number(), {generation.orchestrator()}};
}

v1::SubmitRequest ToProto(const scheduler::SubmitCalled& submit) {
  v1::SubmitRequest out;
  out.set_spec(*submit.spec->encoded);
  out.set_plan_instances(submit.shape.instances);
  if (submit.shape.tp > 1) out.set_plan_tp(submit.shape.tp);
  out.set_accepted(submit.accepted);
  ToProto(submit.failed_engines, out.mutable_failed_engines());
  out.set_moves(submit.moves);
  return out;
}

absl::StatusOr<scheduler::SubmitCalled> FromProto(const v1::SubmitRequest& submit) {
  absl::StatusOr<scheduler::HeadPtr> head = HeadFrom(submit.spec());
  if (!head.ok()) return head.status();
  absl::StatusOr<scheduler::FailedEngines> failed = FailedEnginesFrom(submit.failed_engines());
  if (!failed.ok()) return failed.status();
  const absl::StatusOr<scheduler::PrefillShape> shape = ShapeFrom(submit);
  if (!shape.ok()) return shape.status();
  return scheduler::SubmitCalled{*std::move(head), *shape, submit.accepted(), *std::move(failed),
                                 submit.moves()};
}

v1::RouterEnded ToProto(const scheduler::RouterEnd& end) {
  v1::RouterEnded out;
  *out.mutable_id() = ToProto(end.id);
  out.set_how(ToProto(end.how));
  if (!end.why.empty()) out.set_why(end.why);
  out.set_output_tokens(static_cast<uint64_t>(end.output_tokens));
  if (end.first_token_us >= 0) out.set_first_token_us(static_cast<uint64_t>(end.first_token_us));
  return out;
}

absl::StatusOr<scheduler::RouterEnd> FromProto(const v1::RouterEnded& ended) {
  const absl::StatusOr<scheduler::RequestId> id = FromProto(ended.id());
  if (!id.ok()) return id.status();
  const absl::StatusOr<How> how = HowFrom(ended.how());
  if (!how.ok()) return how.status();
  if (ended.output_tokens() > uint64_t{kMaxCount}) {
    return TooLarge("ended.output_tokens", ended.output_tokens(), kMaxCount);
  }
  const auto first_token_us = DurationFrom("ended.first_token_us", ended.first_token_us());
  if (!first_token_us.ok()) return first_token_us.status();
  return scheduler::RouterEnd{*id, *how, ended.why(), static_cast<int64_t>(ended.output_tokens()),
                              ended.has_first_token_us() ? *first_token_us : -1};
}

v1::RouterIdentity ToProto(const scheduler::RouterIdentity& identity) {
  v1::RouterIdentity out;
  out.ParseFromString(identity.details);
  out.set_router(identity.router);
  out.set_endpoint(identity.endpoint);
  out.set_host(identity.host);
  SetBuild(identity.build, &out);
  return out;
}

v1::RouterLoad ToProto(const scheduler::RouterLoad& load) {
  v1::RouterLoad out;
  out.set_queued(static_cast<uint64_t>(load.queued));
  out.set_running(static_cast<uint64_t>(load.running));
  out.set_draining(load.draining);
  out.set_uptime_us(static_cast<uint64_t>(load.uptime_us));
  for (const scheduler::Incarnation one : load.heard) out.add_heard(one.value);
  for (const scheduler::Incarnation one : load.not_heard) out.add_not_heard(one.value);
  return out;
}

absl::StatusOr<scheduler::RouterLoad> FromProto(const v1::RouterLoad& load) {
  if (load.queued() > uint64_t{kMaxCount}) return TooLarge("queued", load.queued(), kMaxCount);
  if (load.running() > uint64_t{kMaxCount}) return TooLarge("running", load.running(), kMaxCount);
  const auto uptime_us = DurationFrom("uptime_us", load.uptime_us());
  if (!uptime_us.ok()) return uptime_us.status();
  scheduler::RouterLoad out{static_cast<int64_t>(load.queued()),
                            static_cast<int64_t>(load.running()), load.draining(), *uptime_us};
  absl::Status status = ProcessesFrom("heard", load.heard(), &out.heard);
  status.Update(ProcessesFrom("not_heard", load.not_heard(), &out.not_heard));
  if (!status.ok()) return status;
  return out;
}

v1::RouterHello ToProto(const scheduler::RouterHello& hello) {
  v1::RouterHello out;
  *out.mutable_identity() = ToProto(hello.identity);
  if (hello.seen.number != 0) *out.mutable_seen() = ToProto(hello.seen);
  *out.mutable_load() = ToProto(hello.load);
  for (const scheduler::RouterRequest& one : hello.requests) {
    v1::RouterRequest* added = out.add_requests();
    *added->mutable_id() = ToProto(one.id);
    added->set_epoch(one.epoch.value);
    added->set_placed(one.placed);
    added->set_decode_instance(one.decode.value);
    added->set_streams(one.streams);
  }
  for (const scheduler::RouterEnd& one : hello.ended) *out.add_ended() = ToProto(one);
  out.set_stream(hello.stream);
  return out;
}

absl::StatusOr<scheduler::RouterHello> FromProto(const v1::RouterHello& hello) {
  scheduler::RouterHello out;
  absl::StatusOr<scheduler::RouterIdentity> identity = IdentityFrom(hello.identity());
  if (!identity.ok()) return identity.status();
  out.identity = *std::move(identity);
  const absl::StatusOr<scheduler::Generation> seen = FromProto(hello.seen());
  if (!seen.ok()) return seen.status();
  out.seen = *seen;
  const absl::StatusOr<scheduler::RouterLoad> load = FromProto(hello.load());
  if (!load.ok()) return load.status();
  out.load = *load;
  for (const v1::RouterRequest& one : hello.requests()) {
    const absl::StatusOr<scheduler::RouterRequest> request = RequestFrom(one);
    if (!request.ok()) return request.status();
    if (absl::Status of = IsOfRouter(request->id, out.identity.router); !of.ok()) return of;
    out.requests.push_back(*request);
  }
  for (const v1::RouterEnded& one : hello.ended()) {
    absl::StatusOr<scheduler::RouterEnd> end = FromProto(one);
    if (!end.ok()) return end.status();
    if (absl::Status of = IsOfRouter(end->id, out.identity.router); !of.ok()) return of;
    out.ended.push_back(*std::move(end));
  }
  if (hello.stream() == 0) return Invalid("stream", "is 0");
  out.stream = hello.stream();
  return out;
}

absl::Status IsOfRouter(scheduler::RequestId id, uint64_t router) {
  if (id.router == router) return absl::OkStatus();
  return Invalid("id.router", absl::StrCat(id.router, " is not ", router,
                                           ", the router that this stream belongs to"));
}

v1::CellReport ToProto(const scheduler::CellReport& report) {
  v1::CellReport out;
  for (const auto& [model, load] : report.models) {
    v1::CellReport::Model* added = out.add_models();
    added->set_model(model);
    added->set_capacity(static_cast<uint64_t>(load.capacity));
    added->set_held(static_cast<uint64_t>(load.held));
  }
  out.set_routers(static_cast<uint64_t>(report.routers));
  return out;
}

absl::StatusOr<scheduler::CellReport> FromProto(const v1::CellReport& report) {
  scheduler::CellReport out;
  for (const v1::CellReport::Model& one : report.models()) {
    if (one.model().empty()) return Invalid("cell.models.model", "is empty");
    for (const auto& [field, count] : {std::pair("cell.models.capacity", one.capacity()),
                                       std::pair("cell.models.held", one.held())}) {
      if (count > uint64_t{kMaxCount}) return TooLarge(field, count, kMaxCount);
    }
    out.models[one.model()] = {.capacity = static_cast<int64_t>(one.capacity()),
                               .held = static_cast<int64_t>(one.held())};
  }
  if (report.routers() > uint64_t{kMaxCount}) {
    return TooLarge("cell.routers", report.routers(), kMaxCount);
  }
  out.routers = static_cast<int64_t>(report.routers());
  return out;
}

v1::RouterWelcome ToProto(const scheduler::RouterWelcome& welcome) {
  v1::RouterWelcome out;
  *out.mutable_generation() = ToProto(welcome.generation);
  out.set_lease_us(static_cast<uint64_t>(welcome.lease_us));
  for (const scheduler::RequestId id : welcome.unknown) *out.add_unknown() = ToProto(id);
  if (!welcome.cell.models.empty() || welcome.cell.routers > 0) {
    *out.mutable_cell() = ToProto(welcome.cell);
  }
  SetBuild(welcome.build, &out);
  return out;
}

absl::StatusOr<scheduler::RouterWelcome> FromProto(const v1::RouterWelcome& welcome) {
  scheduler::RouterWelcome out;
  const absl::StatusOr<scheduler::Generation> generation = FromProto(welcome.generation());
  if (!generation.ok()) return generation.status();
  if (generation->number == 0) return Invalid("generation.number", "is 0");
  out.generation = *generation;
  const absl::StatusOr<int64_t> lease_us = LeaseFrom("lease_us", welcome.lease_us());
  if (!lease_us.ok()) return lease_us.status();
  out.lease_us = *lease_us;
  for (const v1::RequestId& one : welcome.unknown()) {
    const absl::StatusOr<scheduler::RequestId> id = FromProto(one);
    if (!id.ok()) return id.status();
    out.unknown.push_back(*id);
  }
  absl::StatusOr<scheduler::CellReport> cell = FromProto(welcome.cell());
  if (!cell.ok()) return cell.status();
  out.cell = *std::move(cell);
  absl::StatusOr<scheduler::PeerBuild> build = BuildFrom(welcome.version(), welcome.protocol());
  if (!build.ok()) return build.status();
  out.build = *std::move(build);
  return out;
}

v1::RouterDrain ToProto(const scheduler::OrderRouterDrain& order) {
  v1::RouterDrain out;
  out.set_drain(order.drain);
  return out;
}

absl::StatusOr<scheduler::OrderRouterDrain> FromProto(const v1::RouterDrain& order) {
  return scheduler::OrderRouterDrain{.call = {}, .drain = order.drain()};
}

}  // namespace skein::services
