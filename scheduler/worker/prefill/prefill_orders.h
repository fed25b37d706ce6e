// PrefillOrders: what the orchestrator orders of a prefill-worker: plans come and grow, are started
// and cancelled, handed back by a drain, orphaned by a new registration. Owns the plans that wait
// for the blocks of an older epoch of their request. Part of PrefillCore, and used only on its
// thread. A call costs O(log requests), but for EndOrphans and HandBack.
//
// Invariants (CheckInvariants names them, by PrefillCore's numbers):
//   7. A request on several instances has a plan of its own, with a block for each of its slots.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/prefill/prefill_ends.h"
#include "scheduler/worker/prefill/prefill_events.h"
#include "scheduler/worker/prefill/prefill_requests.h"
#include "scheduler/worker/prefill/prefill_steps.h"
#include "scheduler/worker/prefill/prefill_transfers.h"
#include "scheduler/worker/prefill/sp_plans.h"
#include "scheduler/worker/prefill/successors.h"

namespace skein::scheduler {

struct PrefillOrdersConfig {
  int64_t max_requests = 0;         // accepted at a time
  int64_t max_sequence_tokens = 0;  // prompt + max_tokens; 0: no limit
  TimeUs request_deadline_us = 0;   // when the spec names none
  TimeUs join_wait_us = 0;          // for blocks, of an instance that joins a running plan
};

class PrefillOrders {
 public:
  using Request = PrefillRequest;

  // Not owned; they outlive it.
  struct Parts {
    const TimeUs* now = nullptr;  // of the event
    PrefillRequests* requests = nullptr;
    SpPlans* sp_plans = nullptr;
    const PrefillSteps* steps = nullptr;
    Membership* membership = nullptr;
    PrefillTransfers* transfers = nullptr;
    PrefillEnds* ends = nullptr;
    std::vector<PrefillEffect>* effects = nullptr;
  };
  PrefillOrders(const PrefillOrdersConfig& config, const Parts& parts)
      : config_(config), parts_(parts) {}

  void On(const AssignCalled& event);
  void On(const StartCalled& event);
  void On(const CancelCalled& event);
  // Ends every epoch of the request up to this one.
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);
  // The instance has registered anew.
  void EndOrphans();
  // It drains: what has not begun here is planned elsewhere.
  void HandBack();
  // Plans whose older epochs have left now begin.
  void TakeSuccessors();
  void EndSuccessors(const absl::Status& status);  // all

  const Successors& successors() const { return successors_; }
  absl::Status CheckInvariants() const;

 private:
  absl::Status Assign(const AssignRequest& assign);
  absl::Status AssignAfterOlder(const AssignRequest& assign);
  absl::Status ExtendPlan(Request& request, const AssignRequest& assign);
  absl::Status Accept(const AssignRequest& request) const;
  void EndSuccessor(RequestId id, const absl::Status& status);

  const PrefillOrdersConfig config_;
  const Parts parts_;
  Successors successors_;
};

}  // namespace skein::scheduler
