#include "scheduler/election/testing/election_register.h"

#include <algorithm>

namespace skein::scheduler {
namespace {

const ElectionEvent::Failed kRefused{ElectionFailure::kRefused};

}  // namespace

ElectionEvent::Any ElectionRegister::Handle(const ElectionEffect::Grant& call, TimeUs now) {
  leases_[++leases_granted_] = {call.ttl_us, now + call.ttl_us};
  return ElectionEvent::Granted{leases_granted_, call.ttl_us};
}

ElectionEvent::Any ElectionRegister::Handle(const ElectionEffect::Claim& call, TimeUs) {
  if (leader_revision_ != 0 || generation_revision_ != call.generation_revision ||
      !leases_.contains(call.lease)) {
    return kRefused;
  }
  leader_revision_ = generation_revision_ = ++revision_;
  leader_lease_ = call.lease;
  generation_ = call.generation;
  return ElectionEvent::Committed{revision_};
}

ElectionEvent::Any ElectionRegister::Handle(const ElectionEffect::Renew& call, TimeUs now) {
  const auto lease = leases_.find(call.lease);
  if (lease == leases_.end()) return kRefused;
  lease->second.ends_us = now + lease->second.ttl_us;
  return ElectionEvent::Renewed{lease->second.ttl_us};
}

ElectionEvent::Any ElectionRegister::Handle(const ElectionEffect::PutGeneration& call, TimeUs) {
  if (leader_revision_ != call.leader_revision ||
      generation_revision_ != call.generation_revision) {
    return kRefused;
  }
  generation_revision_ = ++revision_;
  generation_ = call.generation;
  return ElectionEvent::Committed{revision_};
}

ElectionEvent::Any ElectionRegister::Handle(const ElectionEffect::Revoke& call, TimeUs) {
  if (!leases_.contains(call.lease)) return kRefused;
  End(call.lease);
  return ElectionEvent::Revoked{};
}

void ElectionRegister::Expire(TimeUs now) {
  for (auto it = leases_.begin(); it != leases_.end();) {
    const auto lease = it++;
    if (lease->second.ends_us <= now) End(lease->first);
  }
}

TimeUs ElectionRegister::NextExpiry() const {
  TimeUs next = kNever;
  for (const auto& [id, lease] : leases_) next = std::min(next, lease.ends_us);
  return next;
}

void ElectionRegister::BeginLeasesAnew(TimeUs now) {
  for (auto& [id, lease] : leases_) lease.ends_us = now + lease.ttl_us;
}

void ElectionRegister::End(uint64_t lease) {
  leases_.erase(lease);
  if (leader_revision_ == 0 || leader_lease_ != lease) return;
  leader_revision_ = 0;
  ++revision_;
}

}  // namespace skein::scheduler
