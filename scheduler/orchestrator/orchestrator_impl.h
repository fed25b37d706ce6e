// The parts of OrchestratorCore. Included by its own files only.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/orchestrator/orchestrator_core.h"
#include "scheduler/orchestrator/registry.h"
#include "scheduler/placement/freeness.h"
#include "scheduler/placement/queue_time.h"

namespace skein::scheduler {

class OrchestratorCore::Impl {
 public:
  explicit Impl(const OrchestratorConfig& config);

  std::vector<OrchestratorEffect> Handle(const OrchestratorEvent& event, TimeUs now);
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  OrchestratorSnapshot Snapshot(TimeUs now) const;

 private:
  enum class State { kAssigning, kAssigned, kWaiting, kReserving, kPlaced };

  struct Request {
    SpecPtr spec;
    CallId submit;
    State state = State::kAssigning;
    Epoch epoch;
    TimeUs deadline_us = kNever;

    InstanceId prefill;  // none once it has handed over (or is lost after placement)
    std::set<InstanceId> tried_prefill;
    TimeUs assigned_us = kNever;  // when the prefill instance was known to have it

    uint64_t waiting_number = 0;  // place in the waiting list, by first asking; 0 = never asked
    TimeUs waiting_since_us = 0;
    InstanceId decode;  // reserving or placed there
    std::set<InstanceId> tried_decode;
    TimeUs placed_us = kNever;

    std::optional<CallId> begin_call;  // BeginPrefill to be answered
    TimeUs begin_deadline_us = kNever;
  };
  using Requests = std::map<RequestId, Request>;

  void On(const SubmitCalled& event);
  void On(const SubmitClosed& event);
  void On(const BeginPrefillCalled& event);
  void On(const RegisterCalled& event);
  void On(const ReportCalled& event);
  void On(const UnregisterCalled& event);
  void On(const AssignReplied& event);
  void On(const ReserveReplied& event);
  void On(const OrchestratorTick& event) {}

  absl::Status MaySubmit(const RequestSpec& spec) const;
  Request* Find(RequestId id);
  Request* Find(RequestId id, Epoch epoch);

  // Placement of prefill.
  void Assign(Request& request);  // on the next instance, under a new epoch, or fails it
  void TakeFromPrefill(Request& request);
  PrefillCandidate PrefillCandidateOf(const Instance& instance) const;

  // Placement of decode.
  void PlaceWaiting();  // first come, first served within a model
  bool TryReserve(Request& request);
  void BackToWaiting(Request& request);
  void TakeFromDecode(Request& request);
  DecodeCandidate DecodeCandidateOf(const Instance& instance) const;
  void AnswerBegin(Request& request, absl::Status status);

  // Instances come and go.
  void TakeEnded(const Instance& instance, const EndedRequest& ended);
  std::vector<HeldRequest> UnknownOf(const Instance& instance) const;
  void FailMissing(InstanceId instance);
  void Lose(InstanceId instance, const std::string& why);
  void LosePrefill(Request& request, const std::string& why);
  void LoseDecode(Request& request, const std::string& why);

  void RunTimers();
  // A timer of a request was set.
  void Arm(TimeUs at) { timers_us_ = std::min(timers_us_, at); }

  // The ends of a request; each erases it.
  void Fail(Request& request, const absl::Status& status);
  void Cancel(Request& request, const std::string& why);  // its router is gone
  void Finish(Request& request);
  void Erase(Request& request, const std::string& why);  // cancels wherever it may still be

  void CancelAt(InstanceId instance, const Request& request, const std::string& why);

  OrchestratorConfig config_;
  TimeUs now_ = 0;
  std::vector<OrchestratorEffect> effects_;
  Registry registry_;
  Requests requests_;
  TimeUs timers_us_ = kNever;  // no request's timer is earlier
  std::map<CallId, RequestId> submits_;
  std::map<std::string, std::map<uint64_t, RequestId>> waiting_;  // model -> by waiting number
  uint64_t last_epoch_;
  uint64_t last_sequence_ = 0;
  uint64_t last_waiting_ = 0;
  uint64_t submitted_ = 0;
  uint64_t failed_ = 0;
  uint64_t instances_lost_ = 0;
};

}  // namespace skein::scheduler
