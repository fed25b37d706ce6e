// Operators' requests and answers.
#include <optional>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/internal.h"

namespace skein::services {
v1::RouterStatus ToProto(const scheduler::RouterStatus& status) {
  v1::RouterStatus out;
  *out.mutable_identity() = ToProto(status.identity);
  *out.mutable_load() = ToProto(status.load);
  out.set_since_report_us(static_cast<uint64_t>(status.silent_us));
  out.set_draining(status.draining);
  out.set_drained(status.drained);
  return out;
}

v1::GoneStatus ToProto(const scheduler::Gone& gone, scheduler::TimeUs now) {
  v1::GoneStatus out;
  out.set_instance(gone.instance.value);
  if (gone.instance.value != 0) {
    out.set_role(gone.role == scheduler::Role::kPrefill ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
  }
  out.set_model(gone.model);
  out.set_endpoint(gone.endpoint);
  out.set_gone_us(static_cast<uint64_t>(now - gone.at_us));
  out.set_why(gone.why);
  out.set_left(gone.left);
  out.set_replaced(gone.replaced);
  return out;
}

v1::RefusedPeer ToProto(const scheduler::RefusedPeer& peer, scheduler::TimeUs now) {
  v1::RefusedPeer out;
  out.set_what(peer.what);
  out.set_model(peer.model);
  out.set_endpoint(peer.endpoint);
  out.set_version(peer.version);
  out.set_why(peer.why);
  out.set_since_us(static_cast<uint64_t>(now - peer.first_us));
  out.set_times(peer.times);
  return out;
}

absl::StatusOr<scheduler::DrainRequest> FromProto(const v1::DrainRequest& request) {
  if (request.instance() == 0 && request.router() == 0) {
    return Invalid("instance", "is 0 and no router is named");
  }
  return scheduler::DrainRequest{
      {request.instance()}, request.router(), request.undo(), request.force()};
}

namespace {

v1::GroupStatus::Formation ToProto(const scheduler::FormationStatus& formation) {
  v1::GroupStatus::Formation out;
  for (const scheduler::InstanceId member : formation.members) out.add_members(member.value);
  out.set_name(formation.name);
  out.set_stage(std::string(formation.stage));
  out.set_epoch(formation.epoch);
  out.set_pinned(formation.pinned);
  out.set_for_us(static_cast<uint64_t>(formation.for_us));
  out.set_why(formation.why);
  return out;
}

absl::StatusOr<scheduler::orchestrator::FormationOrder::Act> ActFrom(
    v1::ChangeFormationRequest::Act act) {
  using Act = scheduler::orchestrator::FormationOrder::Act;
  switch (act) {
    case v1::ChangeFormationRequest::ACT_BIND:
      return Act::kBind;
    case v1::ChangeFormationRequest::ACT_RELEASE:
      return Act::kRelease;
    case v1::ChangeFormationRequest::ACT_PIN:
      return Act::kPin;
    case v1::ChangeFormationRequest::ACT_UNPIN:
      return Act::kUnpin;
    case v1::ChangeFormationRequest::ACT_SHARE:
      return Act::kShare;
    default:
      return Invalid("act", absl::StrCat(static_cast<int>(act), " is unknown"));
  }
}

}  // namespace

v1::GroupStatus ToProto(const scheduler::GroupStatus& group) {
  v1::GroupStatus out;
  out.set_name(group.name);
  out.set_role(group.role == scheduler::Role::kPrefill ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
  out.set_model(group.model);
  out.set_node(group.node);
  for (const scheduler::InstanceId member : group.members) out.add_members(member.value);
  for (const scheduler::FormationStatus& one : group.formations) {
    *out.add_formations() = ToProto(one);
  }
  out.set_for_us(static_cast<uint64_t>(group.for_us));
  out.set_why(group.why);
  for (const auto& [formation, why] : group.rejected) {
    v1::GroupStatus::Rejected* rejected = out.add_rejected();
    rejected->set_formation(formation);
    rejected->set_why(why);
  }
  out.set_generation(group.generation);
  out.set_ready(static_cast<uint64_t>(group.ready));
  return out;
}

absl::StatusOr<scheduler::orchestrator::FormationOrder> FromProto(
    const v1::ChangeFormationRequest& request) {
  const auto act = ActFrom(request.act());
  if (!act.ok()) return act.status();
  scheduler::orchestrator::FormationOrder out{.act = *act, .instances = {}, .group = {}};
  for (const uint64_t instance : request.instances()) {
    if (instance == 0) return Invalid("instances", "0 is no instance");
    out.instances.push_back({instance});
  }
  if (out.instances.empty() == request.group().empty()) {
    return Invalid("instances", "name either instances or a group");
  }
  if (request.size() > kMaxCount) return TooLarge("size", request.size(), kMaxCount);
  if (!v1::EndFormation::Switch_IsValid(request.how())) {
    return Invalid("how", absl::StrCat(static_cast<int>(request.how()), " is unknown"));
  }
  const auto shift =
      ShiftFrom(request.has_shift_tokens() ? std::optional(request.shift_tokens()) : std::nullopt,
                request.shift_tp());
  if (!shift.ok()) return shift.status();
  out.shift = *shift;
  const absl::StatusOr<scheduler::OwnSequences> own = FromProto(request.own());
  if (!own.ok()) return own.status();
  out.own = *own;
  const auto shared = FromProto(request.shared());
  if (!shared.ok()) return shared.status();
  out.shared = *shared;
  out.group = request.group();
  out.size = static_cast<int32_t>(request.size());
  if (request.how() == v1::EndFormation::HARD) out.how = scheduler::Switch::kHard;
  return out;
}

}  // namespace skein::services
