// The parts of PrefillCore, and what carries out their decisions. Included by its own files only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "scheduler/worker/kv_out/kv_out.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/prefill/decode_place_calls.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/prefill/prefill_requests.h"
#include "scheduler/worker/prefill/prefill_steps.h"
#include "scheduler/worker/prefill/sp_plans.h"
#include "scheduler/worker/prefill/successors.h"
#include "scheduler/worker/tombstones.h"

namespace skein::scheduler {

class PrefillCore::Impl {
 public:
  explicit Impl(const PrefillConfig& config);

  std::vector<PrefillEffect> Handle(const PrefillEvent& event, TimeUs now);
  TimeUs NextDeadline() const;
  absl::Status CheckEpoch(Epoch epoch) const { return membership_.CheckEpoch(epoch); }
  absl::Status CheckInvariants() const;
  PrefillSnapshot Snapshot(TimeUs now) const;
  std::string_view StateOf(RequestId id) const { return requests_.NameOfPhase(id); }

 private:
  using Request = PrefillRequest;
  using Phase = PrefillRequest::Phase;

  void On(const AssignCalled& event);
  void On(const StartCalled& event);
  void On(const CancelCalled& event);
  void On(const PlaceDecodeReplied& event);
  void On(const StepDone& event);
  void On(const RegisterReplied& event);
  void On(const Drain& event);
  void On(const OrderDrain& event);
  // The rest is about the stream to the orchestrator, or about KV on its way; a Tick is neither.
  template <class Event>
  void On(const Event& event) {
    if constexpr (requires { membership_.On(event, now_); }) {
      membership_.On(event, now_);
    } else if constexpr (!std::is_same_v<Event, Tick>) {
      kv_out_.On(event, now_);
    }
  }

  // How plans come and requests end: prefill_core.cc.
  absl::Status Assign(const AssignRequest& assign);
  absl::Status AssignAfterOlder(const AssignRequest& assign);
  absl::Status ExtendPlan(Request& request, const AssignRequest& assign);
  absl::Status Accept(const AssignRequest& request) const;
  void TakeSuccessors();
  void EndSuccessor(RequestId id, const absl::Status& status);
  void EndSuccessors(const absl::Status& status);  // all
  void EndOrphans();
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);
  void HandBack();
  void EndThose(const std::function<bool(const Request&)>& which, const absl::Status& status);
  void End(Request& request, const absl::Status& status);
  void MaybeLeave(Request& request);  // erases it when nothing touches its blocks
  void Erase(Request& request, const absl::Status& status, const HandoffPath& path = {});
  void Report();

  // A request's life between its plan and its end: prefill_flow.cc.
  void RunTimers();
  void AdmitQueued();
  void Ask(const Request& request);
  void Place(Request& request, const Placed& placed);
  void OpenTransfer(Request& request);
  void BeginWork(Request& request);
  void OpenHandoffOf(Request& request);
  void TakeOutcomes();  // of KV on its way
  void StartStep();
  void TakeResult(Request& request, const StepSequence& ran, const StepResult& result);
  void LeaveWithFailedEngine();
  void TellProgress(const SpPlan& plan, const Request& request);  // in the next report
  void TellOpened(const Request& request);                        // likewise
  static bool HasOpened(const Request& request);                  // its transfer, here

  bool Empty() const;
  WorkerLoad Load() const;
  std::vector<HeldRequest> Held() const;

  PrefillConfig config_;
  TimeUs now_ = 0;
  std::vector<PrefillEffect> effects_;
  Membership membership_;
  PrefillRequests requests_;
  SpPlans sp_plans_;
  Successors successors_;
  DecodePlaceCalls place_calls_;
  PrefillSteps steps_;
  KvOut kv_out_;
  Tombstones tombstones_;
  std::vector<RequestId> left_;  // by this event; successors_ may follow them
  TimeUs drain_end_us_ = kNever;
  bool drain_ended_ = false;  // drain_end_us_ has passed, and all requests left then were ended
  uint64_t committed_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler
