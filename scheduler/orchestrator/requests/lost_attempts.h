// LostAttempts: at which decode instances the attempts of a request were lost that its router has
// ended and tries again. From the end of one attempt to the submission of the next, which is not
// placed there again while another instance can take it: an instance that its router does not
// reach answers the orchestrator all the same. Part of RouterSide.
//
// Bounded: kMax requests; beyond it the one that was noted first is forgotten.
//
// Invariant (CheckInvariants): each request is noted once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler::orchestrator {

class LostAttempts {
 public:
  static constexpr size_t kMax = 4096;

  // The attempt has ended; it and those before it were lost at these.
  void Note(RequestId attempt, std::set<InstanceId> decodes);
  // The next attempt is submitted: those at which the ones before it were lost. Forgets them.
  std::set<InstanceId> Take(RequestId attempt);
  void Forget(RequestId attempt);  // there will be none
  void ForgetRouter(uint64_t router);

  size_t size() const { return entries_.size(); }
  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    uint64_t number = 0;
    std::set<InstanceId> decodes;
  };
  void Erase(std::map<RequestId, Entry>::iterator it);

  std::map<RequestId, Entry> entries_;  // by RequestId::First
  std::map<uint64_t, RequestId> order_;
  uint64_t last_number_ = 0;
};

}  // namespace skein::scheduler::orchestrator
