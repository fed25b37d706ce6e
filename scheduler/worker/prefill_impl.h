// The parts of PrefillCore. Included by its own files only.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/worker/membership.h"
#include "scheduler/worker/prefill_core.h"
#include "scheduler/worker/rate_meter.h"
#include "scheduler/worker/tombstones.h"

namespace skein::scheduler {

class PrefillCore::Impl {
 public:
  explicit Impl(const PrefillConfig& config);

  std::vector<PrefillEffect> Handle(const PrefillEvent& event, TimeUs now);
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  PrefillSnapshot Snapshot(TimeUs now) const;

 private:
  enum class State { kQueued, kAsking, kPlaced, kEnding };

  // The right to write at the decode side, and the calls about it.
  struct Grant {
    bool calling = false;
    bool granted = false;
    int attempts = 0;
    TimeUs sent_us = 0;
    TimeUs retry_us = kNever;
    bool renewing = false;
    TimeUs renew_sent_us = 0;
    TimeUs renew_us = kNever;
    TimeUs post_until_us = 0;  // this side's view of the lease's end
  };

  struct Handoff {
    bool active = false;  // StartHandoff sent, its end not yet heard
    bool stopping = false;
    bool done = false;
    std::vector<int64_t> bytes_per_layer;
  };

  struct Commit {
    bool calling = false;
    int attempts = 0;
    TimeUs retry_us = kNever;
  };

  struct Request {
    SpecPtr spec;
    Epoch epoch;
    PlanSequence sequence;
    State state = State::kQueued;
    TimeUs arrived_us = 0;
    TimeUs deadline_us = kNever;
    BlockTable blocks;

    bool ask_calling = false;
    TimeUs ask_retry_us = kNever;
    TimeUs ask_unreachable_since_us = kNever;

    std::string endpoint;  // of the decode instance, once placed
    Grant grant;
    Handoff handoff;
    Commit commit;

    bool computed = false;  // the whole prompt
    int32_t token = 0;
    std::string payload;
    std::string prompt_logprobs;

    absl::Status end_status;  // when ending
  };
  using Requests = std::map<RequestId, Request>;

  void On(const AssignCalled& event);
  void On(const CancelCalled& event);
  void On(const BeginPrefillReplied& event);
  void On(const GrantReplied& event);
  void On(const RenewReplied& event);
  void On(const CommitReplied& event);
  void On(const StepDone& event);
  void On(const HandoffDone& event);
  void On(const HandoffFailed& event);
  void On(const HandoffStopped& event);
  void On(const RegisterReplied& event) { membership_.OnRegistered(event.reply, now_); }
  void On(const ReportReplied& event);
  void On(const UnregisterReplied& event) { membership_.OnUnregistered(); }
  void On(const Drain& event);
  void On(const Tick& event) {}

  absl::Status Accept(const AssignRequest& request) const;
  Request* Find(RequestId id, Epoch epoch);
  Request* FindLive(RequestId id, Epoch epoch);  // not ending
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);

  // What follows from the state, after every event.
  void RunTimers();
  void RunTimers(Request& request);
  void AskForPlaces();
  void StartStep();
  void Report();

  void Ask(Request& request);
  void AskForGrant(Request& request);
  void StartWriting(Request& request, const GrantReply& reply);
  void Renew(Request& request);
  void MaybeCommit(Request& request);
  void TakeResult(Request& request, const StepSequence& ran, const StepResult& result);
  void FailEngine(const absl::Status& status);
  void Finish(Request& request);  // committed
  void End(Request& request, const absl::Status& status);
  void EndAll(const absl::Status& status);
  void MaybeLeave(Request& request);  // erases it when nothing touches its blocks
  void Erase(Request& request, const absl::Status& status);

  bool Empty() const { return requests_.empty(); }
  WorkerLoad Load() const;
  std::vector<HeldRequest> Held() const;
  // In front: asking, or placed and not yet computed.
  bool MayAskMore() const;
  void LeaveFront(const Request& request);
  // A timer of a request was set.
  void Arm(TimeUs at) { timers_us_ = std::min(timers_us_, at); }
  static TimeUs EarliestTimer(const Request& request);

  PrefillConfig config_;
  KvShape shape_;
  TimeUs now_ = 0;
  std::vector<PrefillEffect> effects_;
  BlockPool pool_;
  BatchScheduler batch_;
  Membership membership_;
  RateMeter rate_;
  Tombstones tombstones_;
  Requests requests_;
  std::set<std::pair<PlanSequence, RequestId>> queue_;  // exactly those queued
  std::set<RequestId> front_;
  int64_t front_tokens_ = 0;        // of their prompts
  TimeUs timers_us_ = kNever;       // no request's timer is earlier
  std::vector<StepSequence> step_;  // in flight
  uint64_t step_number_ = 0;
  TimeUs step_started_us_ = 0;
  TimeUs drain_end_us_ = kNever;
  absl::Status engine_status_;
  uint64_t prompt_tokens_ = 0;
  uint64_t committed_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler
