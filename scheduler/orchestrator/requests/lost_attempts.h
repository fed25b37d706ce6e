// LostAttempts: what is known of a request's attempts that its router has ended and tries again,
// from the end of one to the submission of the next. At which decode instances they were lost: the
// next one is not placed there again while another instance can take it, because an instance that
// its router does not reach answers the orchestrator all the same. And which prefill instance
// computed the last one's prompt: it may have kept the KV
// (scheduler/worker/prefill/kept_prompts.h). Part of RouterSide.
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

  struct Lost {
    std::set<InstanceId> decodes;  // at which it and those before it were lost
    InstanceId kept_at;            // 0: no instance has its prompt's KV
  };
  // The attempt has ended.
  void Note(RequestId attempt, Lost lost);
  // The next attempt is submitted. Forgets what it returns.
  Lost Take(RequestId attempt);
  void Forget(RequestId attempt);  // there will be none
  void ForgetRouter(uint64_t router);

  size_t size() const { return entries_.size(); }
  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    uint64_t number = 0;
    Lost lost;
  };
  void Erase(std::map<RequestId, Entry>::iterator it);

  std::map<RequestId, Entry> entries_;  // by RequestId::First
  std::map<uint64_t, RequestId> order_;
  uint64_t last_number_ = 0;
};

}  // namespace skein::scheduler::orchestrator
