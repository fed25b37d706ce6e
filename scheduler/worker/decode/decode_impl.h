// The parts of DecodeCore. Included by its own files only.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/base/listening_clock.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/kv_in/announcements.h"
#include "scheduler/worker/kv_in/kv_in.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/prefill/rate_meter.h"
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
  enum class Phase { kReceiving, kRunning, kEnded };  // kReceiving: its KV
  enum class Stream { kUnattached, kAttached, kClosed };

  struct Token {
    int64_t index = 0;
    int32_t token = 0;
    std::string payload;
  };

  struct Sequence {
    SpecPtr spec;
    Epoch epoch;
    Phase phase = Phase::kReceiving;
    TimeUs arrived_us = 0;
    bool committed = false;  // its KV was whole, also after its end

    Stream stream = Stream::kUnattached;
    CallId call;  // when attached
    std::deque<Token> unsent;
    std::string prompt_logprobs;        // until sent
    std::optional<PrefillTimes> times;  // likewise

    std::shared_ptr<std::vector<int32_t>> output = std::make_shared<std::vector<int32_t>>();
    FinishReason reason = FinishReason::kError;
    absl::Status status;
    bool told = false;  // the orchestrator of its end
    bool unclaimed = false;
    int64_t output_tokens = 0;  // sampled, the stop token included
    int32_t stop_token = -1;
  };
  using Sequences = std::map<RequestId, Sequence>;

  void On(const AnnounceCalled& event);
  void On(const WithdrawCalled& event);
  void On(const OpenTransferCalled& event) { Open(event, now_ + config_.open_wait_us); }
  void On(const CancelCalled& event);
  void On(const AbortCalled& event);
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
  absl::Status MayOpen(const Announcements::Announced& announced) const;
  absl::Status TakeBlocks(RequestId id);
  void RunOpeningTimers();
  void TakeOutcomes();  // of KvIn
  void Run(Sequence& sequence, KvIn::Result result);
  KvIn::Gone WhyGone(RequestId id, Epoch epoch) const;

  Sequence* Find(RequestId id, Epoch epoch);
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);

  void RunTimers();
  TimeUs Listening() const { return listening_.At(now_); }
  void StartStep();
  void Probe();  // if it is due
  void Report();

  void TakeResult(Sequence& sequence, const StepResult& result);
  void TakeToken(Sequence& sequence, int32_t token, const std::string& payload);
  void FailOverdueStep();
  void LeaveWithFailedEngine();
  void Flush(Sequence& sequence);  // what the attached stream has not got yet
  void End(Sequence& sequence, FinishReason reason, const absl::Status& status);
  // Once.
  void TellEnd(Sequence& sequence, FinishReason reason, const absl::Status& status);
  void EndAll(const absl::Status& status);
  void SetPhase(Sequence& sequence, Phase phase);
  void Release(const Sequence& sequence);  // gives the blocks back, unless a step reads them
  // Of the requests that this event touched: erases those with neither blocks nor a stream to
  // serve, and looks again at the Grants that wait for them.
  void FollowUp();
  void Erase(Sequences::iterator it);

  bool Empty() const;
  int64_t Count(Phase phase) const { return counts_[static_cast<size_t>(phase)]; }
  int64_t LiveCount() const { return Count(Phase::kReceiving) + Count(Phase::kRunning); }
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
  RateMeter rate_;
  Tombstones tombstones_;
  Sequences sequences_;
  Announcements announcements_;
  std::array<int64_t, 3> counts_{};                   // of sequences, by phase
  int64_t unclaimed_ = 0;                             // ended, and no router has come yet
  std::set<std::pair<TimeUs, RequestId>> receiving_;  // by their arrival
  TimerQueue<RequestId> attach_ends_;                 // by the listening clock
  std::vector<RequestId> touched_;                    // by this event
  std::map<CallId, RequestId> calls_;                 // attached streams
  TimeUs drain_end_us_ = kNever;
  uint64_t output_tokens_ = 0;
  uint64_t finished_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler
