// The parts of PrefillCore, and what concerns several of them: the order of an event's steps, steps
// and their results, timers, drain. Included by its own files only.
//
//   PrefillOrders     plans come and grow, are started, cancelled and handed back
//   PrefillTransfers  from a request's admission to its KV at the decode side
//   PrefillEnds       how requests end
//   PrefillRequests, SpPlans, DecodePlaceCalls, PrefillSteps, KvOut, Membership   shared tables
//
// prefill_core.cc has what happens; prefill_checks.cc what the core shows of itself.
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "scheduler/worker/kv_out/kv_out.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/prefill/decode_place_calls.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/prefill/prefill_ends.h"
#include "scheduler/worker/prefill/prefill_orders.h"
#include "scheduler/worker/prefill/prefill_requests.h"
#include "scheduler/worker/prefill/prefill_steps.h"
#include "scheduler/worker/prefill/prefill_transfers.h"
#include "scheduler/worker/prefill/sp_plans.h"

namespace skein::scheduler {

class PrefillCore::Impl {
 public:
  explicit Impl(const PrefillConfig& config);

  std::vector<PrefillEffect> Handle(const PrefillEvent& event, TimeUs now);
  TimeUs NextDeadline() const;
  absl::Status CheckEpoch(Epoch epoch) const { return membership_.CheckEpoch(epoch); }
  absl::Status CheckInvariants() const;
  PrefillSnapshot Snapshot(TimeUs now) const;
  std::string_view StateOf(RequestId id) const { return requests_.NameOf(id); }

 private:
  using Request = PrefillRequest;
  using Phase = PrefillRequest::Phase;
  using Standing = PrefillRequest::Standing;

  void On(const StepDone& event);
  void On(const RegisterReplied& event);
  void On(const Drain& event);
  void On(const OrderDrain& event);
  // The other events go to the part that has On for them; a Tick to none.
  template <class Event>
  void On(const Event& event) {
    if constexpr (requires { orders_.On(event); }) {
      orders_.On(event);
    } else if constexpr (requires { transfers_.On(event); }) {
      transfers_.On(event);
    } else if constexpr (requires { membership_.On(event, now_); }) {
      membership_.On(event, now_);
    } else if constexpr (!std::is_same_v<Event, Tick>) {
      kv_out_.On(event, now_);
    }
  }

  void RunTimers();
  void StartStep();
  void TakeResult(Request& request, const StepSequence& ran, const StepResult& result);
  void LeaveWithFailedEngine();
  void Report();

  bool Empty() const;
  WorkerLoad Load() const;
  std::vector<HeldRequest> Held() const;

  const PrefillConfig config_;
  TimeUs now_ = 0;
  std::vector<PrefillEffect> effects_;
  Membership membership_;
  PrefillRequests requests_;
  SpPlans sp_plans_;
  DecodePlaceCalls place_calls_;
  PrefillSteps steps_;
  KvOut kv_out_;
  PrefillEnds ends_;
  PrefillTransfers transfers_;
  PrefillOrders orders_;
  TimeUs drain_end_us_ = kNever;
  bool drain_ended_ = false;  // drain_end_us_ has passed, and all requests left then were ended
};

}  // namespace skein::scheduler
