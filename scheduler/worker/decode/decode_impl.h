// The parts of DecodeCore, and what concerns several of them: the order of an event's steps, KV
// that is whole, steps, routers, drain. Included by its own files only.
//
//   DecodeOrders      what the orchestrator orders; the announced requests
//   TransferOpening   the first OpenTransfer takes blocks; those that wait
//   PromptSharing     requests that enter with another one's prompt
//   RunningBatch      the sequences that run: their steps, blocks and preemption
//   GroupRequests     requests that the bound group computes from their first token on
//   BoundGroup        the formation of its group; steps that it runs with others
//   SharedPart        likewise, where the group shares its weights and each runs its own steps
//   ExtraBlocks       the blocks that it has in addition meanwhile
//   DecodeEnds        how requests end
//   StreamGaps        the pauses that streams see when the formation changes
//   StreamMoves       in a drain: the streams whose routers are asked to move them
//   KvIn, DecodeSequences, ExpectedStreams, Membership, StepLoop   shared tables
//
// decode_core.cc has what happens, decode_group.cc what the group does; decode_checks.cc what the
// core shows of itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "scheduler/worker/decode/decode_clock.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/decode/decode_ends.h"
#include "scheduler/worker/decode/decode_orders.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/expected_streams.h"
#include "scheduler/worker/decode/extra_blocks.h"
#include "scheduler/worker/decode/group_requests.h"
#include "scheduler/worker/decode/prompt_sharing.h"
#include "scheduler/worker/decode/running_batch.h"
#include "scheduler/worker/decode/stream_gaps.h"
#include "scheduler/worker/decode/stream_moves.h"
#include "scheduler/worker/decode/transfer_opening.h"
#include "scheduler/worker/group/bound_group.h"
#include "scheduler/worker/group/shared_part.h"
#include "scheduler/worker/kv_in/kv_in.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/steps/step_loop.h"

namespace skein::scheduler {

class DecodeCore::Impl {
 public:
  explicit Impl(const DecodeConfig& config);

  std::vector<DecodeEffect> Handle(const DecodeEvent& event, TimeUs now);
  TimeUs NextDeadline() const;
  absl::Status CheckEpoch(Epoch epoch) const { return membership_.CheckEpoch(epoch); }
  absl::Status CheckInvariants() const;
  DecodeSnapshot Snapshot(TimeUs now) const;
  std::string_view StateOf(RequestId id) const;

 private:
  using Phase = DecodeSequence::Phase;
  using Stream = DecodeSequence::Stream;
  using Sequence = DecodeSequence;

  void On(const AttachCalled& event);
  void On(const DetachCalled& event);
  void On(const StepDone& event);
  void On(const RegisterReplied& event);
  void On(const ReportReplied& event);
  void On(const Drain& event);
  void On(const OrderDrain& event);
  void On(const PrepareFormation& event);
  void On(const CommitFormation& event);
  void On(const EndFormation& event);
  void On(const OrderMode& event) { shared_.Order(event); }
  void On(const SharingDone& event);
  void On(const FeedOpened& event) { group_.FeedOpened(event.epoch, event.rank, clock_.now); }
  void On(const FeedArrived& event) { group_.FeedArrived(event.rank, event.message, clock_.now); }
  void On(const FeedLost& event) { group_.FeedLost(event.rank, event.why, clock_.now); }
  // The other events go to the part that has On for them.
  template <class Event>
  void On(const Event& event) {
    if constexpr (std::is_same_v<Event, Tick>) {
      clock_.listening.Listened(clock_.now);
    } else if constexpr (requires { orders_.On(event); }) {
      orders_.On(event);
    } else if constexpr (requires { opening_.On(event); }) {
      opening_.On(event);
    } else if constexpr (requires { membership_.On(event, clock_.now); }) {
      membership_.On(event, clock_.now);
    } else {
      kv_in_.On(event, clock_.Listening());
    }
  }

  // Effects of DecodeSequences.
  void Carry(EmitToken token) {
    const std::optional<StreamGap> gap = gaps_.Sent(token.call, clock_.now);
    effects_.push_back(std::move(token));
    if (gap.has_value()) effects_.push_back(*gap);
  }
  void Carry(EndStream end) {
    gaps_.Ended(end.call);
    effects_.push_back(std::move(end));
  }

  // Effects of BoundGroup.
  void Carry(TellFormation told) {
    if (told.told.phase == FormationTold::Phase::kBound) gaps_.Bound(group_.own());
    effects_.push_back(std::move(told));
  }
  void Carry(FormationOver over) { overs_.push_back(std::move(over)); }
  void Carry(const GroupAnswered& answered) { ends_.Touch(answered.id); }
  void Carry(CloseFeed close) {
    if (close.broken) steps_.Abort(clock_.now);
    effects_.push_back(std::move(close));
  }
  template <class Effect>
  void Carry(Effect effect) {
    effects_.push_back(std::move(effect));
  }

  void RunTimers();
  void TakeOutcomes();  // of KvIn
  void Run(Sequence& sequence, KvIn::Result result);
  void StartSteps();
  void StartStepsOfGroup();
  bool StartOwnOfGroup(int64_t tokens);
  void EndStepOfGroup(const StepLoop::Ended& ended, const StepDone& event);
  void TellOwn();
  void RefuseFormation(uint64_t epoch, absl::Status why);
  bool PausesForSharing();  // no step may begin now
  const FormationTold& LatestTold() const;
  void MoveToGroup();    // what this rank runs when it is bound, where that is ordered
  void JoinGroup();      // at the lead: the preempted ones
  void JoinPreempted();  // those that the group can compute
  void RunInGroup(Sequence& sequence);  // its KV has come to all ranks
  void TakeBack();                      // the sequences of a group that is over
  void EndComing(Sequence& sequence, const absl::Status& why);  // whose KV was for such a one
  void EndWithGroup(Sequence& sequence, const absl::Status& why, const absl::Status& fits);
  void StartIdle();  // a step, or a probe
  // Of a step that began then.
  void TakeResult(Sequence& sequence, bool sampled, const StepResult& result, TimeUs began_us);
  void LeaveWithFailedEngine(const std::vector<StepSequence>& in_flight);
  // Among the requests that this event touched: erases those with neither blocks nor a stream to
  // serve, and retries the OpenTransfers that wait for them.
  void FollowUp();
  void AskRouters();  // to move streams, in a drain
  void Report();

  bool Empty() const;
  WorkerLoad Load() const;
  absl::Status CheckGaps() const;
  std::vector<HeldRequest> Held() const;

  const DecodeConfig config_;
  DecodeClock clock_;
  std::vector<DecodeEffect> effects_;
  StreamGaps gaps_;
  StreamMoves moves_;
  KvIn kv_in_;
  DecodeSequences sequences_;
  ExpectedStreams expected_streams_;  // of requests without blocks
  Membership membership_;
  StepLoop steps_;
  RunningBatch running_;
  BoundGroup group_;
  SharedPart shared_;
  std::vector<FormationOver> overs_;  // not taken back yet
  uint64_t hello_epoch_ = 0;          // of formations, that the latest hello told; 0: none
  DecodeEnds ends_;
  ExtraBlocks extra_;
  DecodeOrders orders_;
  TransferOpening opening_;
  PromptSharing sharing_;
  GroupRequests group_requests_;
  TimeUs drain_end_us_ = kNever;
  uint64_t output_tokens_ = 0;
};

}  // namespace skein::scheduler
