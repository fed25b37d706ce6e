// ElectionRegister: what an election keeps in a store, in memory and in its caller's time: the
// entries of the leader and of the generation, and leases. Worlds in virtual time carry calls to
// it.
#pragma once

#include <cstdint>
#include <map>

#include "scheduler/base/time.h"
#include "scheduler/election/election_core.h"

namespace skein::scheduler {

class ElectionRegister {
 public:
  // Carries a call out, and returns how it ended.
  ElectionEvent::Any Handle(const ElectionEffect::Grant& call, TimeUs now);
  ElectionEvent::Any Handle(const ElectionEffect::Claim& call, TimeUs now);
  ElectionEvent::Any Handle(const ElectionEffect::Renew& call, TimeUs now);
  ElectionEvent::Any Handle(const ElectionEffect::PutGeneration& call, TimeUs now);
  ElectionEvent::Any Handle(const ElectionEffect::Revoke& call, TimeUs now);
  // Ends the leases that are over. Call by NextExpiry.
  void Expire(TimeUs now);
  TimeUs NextExpiry() const;  // kNever: there is no lease
  // The store is back after it was lost: each lease lasts for its whole time again, as in etcd.
  void BeginLeasesAnew(TimeUs now);

  // Its revision grows with each change of an entry.
  ElectionView view() const {
    return {revision_, leader_revision_, generation_revision_, generation_};
  }

 private:
  struct Lease {
    TimeUs ttl_us = 0;
    TimeUs ends_us = 0;
  };
  void End(uint64_t lease);

  int64_t revision_ = 1;
  int64_t leader_revision_ = 0;
  uint64_t leader_lease_ = 0;
  int64_t generation_revision_ = 0;
  uint64_t generation_ = 0;
  uint64_t leases_granted_ = 0;
  std::map<uint64_t, Lease> leases_;
};

}  // namespace skein::scheduler
