// The parts of DecodeCore, and what carries out their decisions. Included by its own files only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scheduler/base/listening_clock.h"
#include "scheduler/worker/decode/block_order.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/expected_streams.h"
#include "scheduler/worker/kv_in/announcements.h"
#include "scheduler/worker/kv_in/kv_in.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/steps/step_loop.h"
#include "scheduler/worker/tombstones.h"

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

  void On(const AnnounceCalled& event);
  void On(const WithdrawCalled& event);
  void On(const OpenTransferCalled& event) { Open(event, now_ + config_.open_wait_us); }
  void On(const CancelCalled& event);
  void On(const AbortCalled& event);
  bool IsStray(const AbortRequest& abort) const;
  void On(const AttachCalled& event);
  void On(const DetachCalled& event);
  void On(const StepDone& event);
  void On(const RegisterReplied& event);
  void On(const Drain& event);
  void On(const OrderDrain& event) { membership_.OrderDrain(event.drain); }
  void On(const Tick& event) { listening_.Listened(now_); }
  // The rest is about the stream to the orchestrator, or about KV that comes in.
  template <class Event>
  void On(const Event& event) {
    if constexpr (requires { membership_.On(event, now_); }) {
      membership_.On(event, now_);
    } else {
      kv_in_.On(event, Listening());
    }
  }

  // What comes before the KV: decode_opening.cc.
  bool MayAnnounce(const AnnounceRequest& request);
  void EndAnnounced(RequestId id, FinishReason reason, const absl::Status& status);
  void Open(const OpenTransferCalled& grant, TimeUs until_us);
  void Refuse(const OpenTransferCalled& grant, const absl::Status& status);
  void HoldOrRefuse(const OpenTransferCalled& grant, TimeUs until_us, const absl::Status& status);
  absl::Status CanEverFit(const RequestSpec& spec) const;
  absl::Status MayOpen(const Announcements::Announced& announced, int64_t blocks) const;
  Sequence& Enter(RequestId id);
  absl::Status TakeBlocks(RequestId id);
  KvIn::Gone WhyGone(RequestId id, Epoch epoch) const;

  // The request has ended here under this epoch and all older ones.
  void Bury(RequestId id, Epoch epoch, bool committed, const absl::Status& status);
  void Refuse(const AttachCalled& attach, absl::Status status);
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);
  void RunTimers();
  TimeUs Listening() const { return listening_.At(now_); }
  void TakeOutcomes();  // of KvIn
  void Run(Sequence& sequence, KvIn::Result result);
  void StartStep();

  // Requests that share another one's prompt: decode_sharing.cc.
  void AwaitPrompt(RequestId id, RequestId from);
  void ShareWithAll(const Sequence& from, const KvIn::Result& result);
  absl::Status Share(RequestId id, const Sequence& from, const KvIn::Result& result);
  absl::Status MayShare(const Announcements::Announced& announced, const Sequence& from) const;
  int64_t SharedBlocks(const RequestSpec& spec) const;
  void EndSharers(RequestId from);

  // Blocks of sequences that run: decode_blocks.cc.
  int64_t Headroom() const;
  bool SomeWaitForBlocks() const {
    return block_order_.FirstWanting().has_value() || block_order_.FirstPreempted().has_value();
  }
  absl::Status HasRoom(int64_t blocks) const;
  void WantBlock(const Sequence& sequence);  // if its table is full
  void GrowTables();                         // of those that want; REQUIRES: no step is in flight
  bool TakeBlock(const Sequence& sequence);
  void Preempt(Sequence& sequence);
  void ResumePreempted();

  void TakeResult(Sequence& sequence, bool sampled, const StepResult& result);
  void LeaveWithFailedEngine();
  void End(Sequence& sequence, FinishReason reason, const absl::Status& status);
  // Reports the end to the orchestrator, once.
  void TellEnd(Sequence& sequence, FinishReason reason, const absl::Status& status);
  void EndAll(const absl::Status& status);
  void Release(const Sequence& sequence);  // gives the blocks back, unless a step reads them
  // Among the requests that this event touched: erases those with neither blocks nor a stream to
  // serve, and retries the OpenTransfers that wait for them.
  void FollowUp();
  void Report();

  bool Empty() const;
  WorkerLoad Load() const;
  std::vector<HeldRequest> Held() const;

  DecodeConfig config_;
  TimeUs now_ = 0;
  ListeningClock listening_;  // to writers and routers
  std::vector<DecodeEffect> effects_;
  KvIn kv_in_;
  BatchScheduler batch_;
  Membership membership_;
  StepLoop steps_;
  Tombstones tombstones_;
  DecodeSequences sequences_;
  BlockOrder block_order_;  // of the sequences that run or are preempted
  Announcements announcements_;
  ExpectedStreams expected_streams_;  // of requests without blocks
  std::vector<RequestId> touched_;    // by this event
  TimeUs drain_end_us_ = kNever;
  uint64_t output_tokens_ = 0;
  uint64_t finished_ = 0;
  uint64_t failed_ = 0;
  uint64_t preemptions_ = 0;
  uint64_t recomputed_tokens_ = 0;
};

}  // namespace skein::scheduler
