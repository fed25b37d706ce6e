// The parts of PrefillCore. Included by its own files only.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/base/timer_queue.h"
#include "scheduler/kv/deal.h"
#include "scheduler/worker/kv_out/kv_out.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/prefill/plan_queue.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/prefill/rate_meter.h"
#include "scheduler/worker/steps/step_loop.h"
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
  std::string_view StateOf(RequestId id) const;

 private:
  enum class State { kQueued, kAsking, kPlaced, kEnding };

  // What a request of an SP plan has besides. Its local blocks are numbered in the order in
  // which its pieces fill them: slot i is block i of Request::blocks.
  struct SpPlan {
    SpPlan(const DealSizes& sizes, InstanceId me) : self(me), dealer(sizes), ahead(sizes) {}

    InstanceId self;  // as the plan names this instance
    std::vector<PlanMember> members;
    std::vector<PlanChunk> chunks;
    std::vector<PlanSequence> assigns;  // heard
    Dealer dealer;                      // behind `next`
    Dealer ahead;                       // behind the last piece of all chunks
    std::optional<Piece> next;          // the next one that this instance takes part in
    std::vector<int32_t> slots;         // by global block; -1: has no copy of it
    int64_t slots_used = 0;
    int64_t later_blocks = 0;    // that chunks still unknown may bring (BlocksToFill of `ahead`)
    std::vector<int32_t> share;  // global blocks that are computed here, ascending
    size_t share_opened = 0;     // so many of them the handoff knows
    int64_t blocks_done = 0;     // of the share
    bool lead = false;
    int front_chunks = 0;  // those of its first Assign: until then it is in front, if it leads
    uint32_t chunks_done = 0;
    TimeUs chunk_since_us = kNever;  // when this instance began the chunk that it is in
    TimeUs join_until_us = kNever;
  };

  struct Request {
    SpecPtr spec;
    Epoch epoch;
    PlanSequence sequence;
    bool suspect = false;
    State state = State::kQueued;
    TimeUs arrived_us = 0;
    TimeUs started_us = kNever;  // the first step with it
    TimeUs deadline_us = kNever;
    BlockTable blocks;

    bool ask_calling = false;
    TimeUs ask_retry_us = kNever;
    TimeUs ask_give_up_us = kNever;  // while there is no stream to ask on

    Placed placed;  // the decode instance; without an endpoint: not known
    // What the last decode instance that did not open the transfer said.
    InstanceId refused_by;
    absl::Status refused_why;
    bool working = false;  // the transfer is open, as far as this instance was told
    InstanceId writer;     // this instance's name towards the decode side

    std::optional<SpPlan> sp_plan;
    bool in_front = false;
    bool computed = false;  // the whole prompt, or all of this instance's part
    bool has_token = false;
    int32_t token = 0;
    std::string payload;
    std::string prompt_logprobs;
    PrefillTimes times;

    absl::Status end_status;  // when ending
  };
  using Requests = std::map<RequestId, Request>;

  // Chunks [from, to) of a plan, to be computed at the place of the Assign that brought them.
  struct Span {
    RequestId id;
    int from = 0;
    int to = 0;
  };

  void On(const AssignCalled& event);
  void On(const StartCalled& event);
  void On(const CancelCalled& event);
  void On(const PlaceDecodeReplied& event);
  void On(const StepDone& event);
  void On(const RegisterReplied& event);
  void On(const ReportReplied& event);
  void On(const UnregisterReplied& event) { membership_.OnUnregistered(); }
  void On(const Disconnected& event);
  void On(const Drain& event);
  void On(const OrderDrain& event);
  void On(const Tick& event) {}
  // The rest is about KV on its way.
  template <class Event>
  void On(const Event& event) {
    kv_out_.On(event, now_);
  }

  void HandBack();

  absl::Status Assign(const AssignRequest& assign);
  absl::Status AssignAfterOlder(const AssignRequest& assign);
  void TakeSuccessors();
  void EndSuccessors(RequestId id, Epoch epoch, const absl::Status& status);
  absl::Status Accept(const AssignRequest& request) const;
  // The call may be made again: it did not get through, or nobody knows whether it did.
  static bool IsUnreachable(const absl::Status& status);
  Request* Find(RequestId id, Epoch epoch);
  Request* FindLive(RequestId id, Epoch epoch);  // not ending
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);

  // What follows from the state, after every event.
  void RunTimers();
  void RunTimers(Request& request);
  void AskForPlaces();
  void StartStep();
  void Probe();  // if it is due
  void Report();

  void Admit(Request& request);
  bool TakeBlocks(Request& request);
  bool TakeBlocksOfYounger(Request& request);
  void BackToQueue(Request& request);
  void Yield(Request& request);
  void Ask(Request& request);
  void AskWhenConnected();  // who waits for the stream asks now
  void AwaitConnection();   // what was asked on the stream that is over was not answered
  void Place(Request& request, const Placed& placed);
  void OpenTransfer(Request& request);
  void Refused(Request& request, const absl::Status& why);  // by the decode instance
  void BeginWork(Request& request);
  void TakeOutcomes();                   // of KV on its way
  void Started(Request& request) const;  // a step with it
  void Computed(Request& request);       // the last step with it has ended
  void TakeResult(Request& request, const StepSequence& ran, const StepResult& result);
  void BatchDone(const StepLoop::Ended& ended, const std::vector<StepResult>& results);
  void FailOverdueStep();
  void LeaveWithFailedEngine();
  void Finish(Request& request);  // committed
  void End(Request& request, const absl::Status& status);
  void EndAll(const absl::Status& status);
  void MaybeLeave(Request& request);  // erases it when nothing touches its blocks
  void Erase(Request& request, const absl::Status& status);

  // SP plans: prefill_span.cc.
  void EndOrphans();
  absl::StatusOr<InstanceId> SelfIn(const AssignRequest& assign) const;
  absl::Status AddSpPlan(const AssignRequest& assign, Request* request);
  absl::Status ExtendPlan(Request& request, const AssignRequest& assign);
  absl::Status AddChunks(const AssignRequest& assign, SpPlan* sp_plan) const;
  absl::Status AddChunk(const AssignRequest& assign, size_t index, SpPlan* sp_plan) const;
  void GiveSlots(SpPlan* sp_plan) const;
  void FindNext(SpPlan* sp_plan) const;
  bool ExtendBlocks(Request& request);
  int64_t BlocksWanted(const Request& request) const;
  std::vector<HandoffBlock> NewPuts(Request& request) const;
  void OpenHandoffOf(Request& request);
  Request* EnterablePiece(PlanSequence* sequence);
  void StartPiece(Request& request);
  void TellProgress(const Request& request);  // in the next report
  RingPart PartOf(const Request& request) const;
  static std::vector<std::string> CommAddresses(const SpPlan& sp_plan, int chunk);
  void LeaveOthers(const Request& request);
  void PieceDone(const StepLoop::Ended& ended, const std::vector<StepResult>& results);
  void TakePiece(Request& request, const StepSequence& ran, const StepResult& result);
  absl::Status CheckSpPlans() const;

  bool InFlight(RequestId id) const { return batch_.InFlight(id) || piece_ == id; }
  // With a failed engine not all is waited for.
  bool Empty() const {
    return (requests_.empty() && successors_.empty()) ||
           (!steps_.engine().ok() && now_ >= drain_end_us_);
  }
  WorkerLoad Load() const;
  std::vector<HeldRequest> Held() const;
  // The plan's lead, or its only member: it opens the transfer, which takes the decode side's
  // blocks. Other members are never in front (plan_queue.h).
  static bool TakesFront(const Request& request) {
    return !request.sp_plan.has_value() || request.sp_plan->lead;
  }
  void LeaveFront(Request& request);
  static PlanQueue::Place PlaceOf(const Request& request) {
    return {request.sequence, request.spec->id, request.sp_plan.has_value()};
  }
  void SetState(Request& request, State state);
  // One of its timers was set, or it is new.
  void Arm(const Request& request) { timers_.Set(request.spec->id, EarliestTimer(request)); }
  static TimeUs EarliestTimer(const Request& request);

  PrefillConfig config_;
  KvShape shape_;
  TimeUs now_ = 0;
  std::vector<PrefillEffect> effects_;
  BlockPool pool_;
  BatchScheduler batch_;
  Membership membership_;
  StepLoop steps_;
  KvOut kv_out_;
  RateMeter rate_;
  Tombstones tombstones_;
  Requests requests_;
  // Accepted Assigns of a newer epoch, until the older epoch of their request has left.
  std::map<RequestId, std::vector<AssignRequest>> successors_;
  std::vector<RequestId> left_;  // by this event; successors_ may follow them
  PlanQueue queue_;
  std::map<PlanSequence, Span> spans_;  // of live requests, not yet computed here
  std::optional<RequestId> piece_;      // whose piece is the step in flight
  TimerQueue<RequestId> timers_;        // no request's timer is earlier
  TimeUs drain_end_us_ = kNever;
  bool drain_ended_ = false;  // what was left then has been ended
  uint64_t prompt_tokens_ = 0;
  uint64_t committed_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler
