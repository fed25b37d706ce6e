// SharedPrompts: the further choices of an answer with n > 1. Each is a request of its own, and
// names the first choice of its prompt (RequestHead::prompt_of). It gets no plan of its own: it is
// announced at the first one's decode instance, where it gets the blocks of that one's prompt when
// they are whole (scheduler/worker/decode/decode_core.h, "Sharing"). From then on it stands as any
// other request whose KV was committed.
//
// It is planned on its own if the first choice is not known here, has ended before it was placed,
// or is decoded elsewhere now (TakeOrphans), or if the decode instance says that it cannot share:
// there is no room, the first one's KV does not come, or was whole before. While the first one
// stays, what the decode instance has been told is decided there, so that a request that runs
// already is not taken back.
//
// Owns who waits for, or was announced with, which first choice. Part of OrchestratorCore. A call
// costs O(log requests) plus what it changes.
//
// Invariants (CheckInvariants, by the core's numbers): 11, exactly the requests in State::kSharing
// are known here, each under a first choice that is alive, or as announced; there is no orphan.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_numbers.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

class SharedPrompts {
 public:
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    Registry* registry = nullptr;
    PlanNumbers* numbers = nullptr;
    PlanSender* sender = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
  };
  explicit SharedPrompts(const Parts& parts) : parts_(parts) {}

  // Returns true if the request shares the prompt of another one from now on. REQUIRES: it is new.
  bool Begin(Request& request, TimeUs now);
  // The request was announced at its decode instance: so are those that share its prompt. Those
  // that were announced elsewhere with it become orphans: its KV does not come there any more.
  void FirstPlaced(const Request& first);
  // The request has its blocks, is planned on its own, or has ended. When it has ended, requests
  // that share its prompt and were not announced become orphans.
  void Opened(Request& request, TimeUs now);
  void Forget(const Request& request);
  void FirstEnded(RequestId first);
  // To be planned on their own, at once; each is in State::kSharing until then.
  std::vector<RequestId> TakeOrphans();

  uint64_t shared() const { return shared_; }  // prompts that were not computed again
  absl::Status CheckInvariants() const;

 private:
  void Announce(Request& request, const Request& first);
  absl::Status CheckRequest(RequestId id) const;

  Parts parts_;
  std::map<RequestId, std::set<RequestId>> sharers_;  // by first choice; no set is empty
  std::set<RequestId> orphans_;    // their first choice is elsewhere, or ended before that
  std::set<RequestId> announced_;  // it has ended; the decode instance tells how they stand
  uint64_t shared_ = 0;
};

}  // namespace skein::scheduler::orchestrator
