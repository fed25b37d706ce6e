// The parts of DecodeCore. Included by its own files only.
#pragma once

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
#include "scheduler/kv/backend_queue.h"
#include "scheduler/worker/decode_core.h"
#include "scheduler/worker/membership.h"
#include "scheduler/worker/rate_meter.h"
#include "scheduler/worker/step_loop.h"
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
  enum class Phase { kGranted, kRunning, kEnded };
  enum class Stream { kUnattached, kAttached, kClosed };

  struct Token {
    int64_t index = 0;
    int32_t token = 0;
    std::string payload;
  };

  // A prefill instance that was granted the blocks.
  struct Writer {
    bool writing = true;      // neither committed nor aborted
    TimeUs lease_end_us = 0;  // by the listening clock
    uint64_t parts = 0;       // staging: taken, or being taken
    bool part_under_way = false;
  };
  using Writers = std::map<InstanceId, Writer>;

  // Blocks of a sequence that ended while somebody may still write to them.
  struct Quarantine {
    BlockTable blocks;
    Writers writers;  // all writing; staging: none
  };

  // A part on its way out of its buffer.
  struct Copy {
    CallId call;
    RequestId id;
    Epoch epoch;
    InstanceId writer;
  };

  // A writer's call that waits for a backend.
  struct Asking {
    CallId call;
    AskBackendRequest request;
    TimeUs until_us = 0;
  };

  // To be decoded here; it has no blocks yet.
  struct Announced {
    SpecPtr spec;
    Epoch epoch;
    absl::Status checked;         // not OK: what its Grants are answered
    std::set<Incarnation> named;  // may be granted the blocks
  };

  // A Grant that came before the announcement that names its writer.
  struct Opening {
    CallId call;
    GrantRequest request;
    TimeUs until_us = 0;
  };

  struct Sequence {
    SpecPtr spec;
    Epoch epoch;
    Phase phase = Phase::kGranted;
    TimeUs arrived_us = 0;
    bool committed = false;

    BlockTable blocks;
    std::set<Incarnation> named;  // may be granted the blocks
    Writers writers;
    // By the listening clock; since any writer's last message.
    TimeUs lease_end_us = 0;
    std::vector<int64_t> bytes_written;  // by layer, of the writers that committed
    bool has_token = false;              // came with its writer's commit
    int32_t token = 0;
    std::string payload;

    Stream stream = Stream::kUnattached;
    CallId call;                    // when attached
    TimeUs attach_end_us = kNever;  // by the listening clock
    std::deque<Token> unsent;
    std::string prompt_logprobs;        // until sent
    std::optional<PrefillTimes> times;  // likewise

    std::shared_ptr<std::vector<int32_t>> output = std::make_shared<std::vector<int32_t>>();
    FinishReason reason = FinishReason::kError;
    absl::Status status;
    int64_t output_tokens = 0;  // drawn, the stop token included
    int32_t stop_token = -1;
  };
  using Sequences = std::map<RequestId, Sequence>;

  void On(const AnnounceCalled& event);
  void On(const WithdrawCalled& event);
  void On(const GrantCalled& event);
  void On(const RenewCalled& event);
  void On(const AskBackendCalled& event);
  void On(const TakePartCalled& event);
  void On(const ReleaseBackendCalled& event);
  void On(const PartCopied& event);
  void On(const CommitCalled& event);
  void On(const CancelCalled& event);
  void On(const AbortCalled& event);
  void On(const GenerateCalled& event);
  void On(const GenerateClosed& event);
  void On(const StepDone& event);
  void On(const RegisterReplied& event);
  void On(const ReportReplied& event);
  void On(const UnregisterReplied& event) { membership_.OnUnregistered(); }
  void On(const Disconnected& event) { membership_.OnDisconnected(event.status, now_); }
  void On(const Drain& event);
  void On(const OrderDrain& event);
  void On(const Tick& event) { listening_.Listened(now_); }

  void RefuseAnnouncement(const AnnounceRequest& request, const absl::Status& why);
  bool MayAnnounce(const AnnounceRequest& request);
  void EndAnnounced(RequestId id, FinishReason reason, const absl::Status& status);
  absl::Status MayOpen(const Announced& announced) const;
  absl::Status TakeBlocks(const Announced& announced);
  void AnswerOpenings();
  std::optional<GrantReply> ReplyTo(const Opening& opening);
  GrantReply GrantWriting(Sequence& sequence, const GrantRequest& request);
  absl::Status RenewLease(const RenewRequest& request);
  absl::Status Commit(const CommitRequest& request);
  absl::Status TakeCommit(Sequence& sequence, const CommitRequest& request) const;
  absl::Status AddBytes(Sequence& sequence, const std::vector<int64_t>& bytes) const;
  static void AddTimes(Sequence& sequence, const PrefillTimes& times);
  bool Whole(const Sequence& sequence) const;  // all bytes and the token are here
  void Run(Sequence& sequence);                // from then on it decodes
  // The writer writes no more, neither to blocks in quarantine nor to its backend.
  void WriterStopped(RequestId id, Epoch epoch, InstanceId writer);
  // Why a message about (id, epoch) comes too late; FAILED_PRECONDITION, CANCELLED or NOT_FOUND.
  absl::Status WhyGone(RequestId id, Epoch epoch) const;

  // Staging: decode_staging.cc.
  absl::StatusOr<Writer*> FindWriter(RequestId id, Epoch epoch, InstanceId writer);
  absl::Status MayTakePart(const TakePartRequest& request, const Sequence& sequence) const;
  bool Copying(RequestId id, Epoch epoch) const;
  void AnswerAsks();
  std::optional<AskBackendReply> ReplyTo(const Asking& asking);

  Sequence* Find(RequestId id, Epoch epoch);
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);
  int64_t BlocksFor(const RequestSpec& spec) const;

  void RunTimers();
  void RunTimers(Sequence& sequence);
  void EndQuarantines();
  TimeUs Listening() const { return listening_.At(now_); }
  TimeUs NextLeaseEnd() const;  // by the listening clock
  bool LeaseOver(const Sequence& sequence) const;
  bool IsWritten(const Sequence& sequence) const;  // somebody still writes to its blocks
  void StartStep();
  void Probe();  // if it is due
  void Report();

  void TakeResult(Sequence& sequence, const StepResult& result);
  void TakeToken(Sequence& sequence, int32_t token, const std::string& payload);
  void FailOverdueStep();
  void LeaveWithFailedEngine();
  void Flush(Sequence& sequence);  // what the attached stream has not got yet
  void End(Sequence& sequence, FinishReason reason, const absl::Status& status);
  void EndAll(const absl::Status& status);
  void Release(Sequence& sequence);  // gives the blocks back, as far as that is safe
  void MaybeErase(RequestId id);     // when it has neither blocks nor a stream to serve

  bool Empty() const;
  int64_t LiveCount() const;
  WorkerLoad Load() const;
  std::vector<HeldRequest> Held() const;

  DecodeConfig config_;
  KvShape shape_;
  TimeUs now_ = 0;
  ListeningClock listening_;  // to writers and routers; of `backends_`, too
  std::vector<DecodeEffect> effects_;
  BlockPool pool_;
  BatchScheduler batch_;
  Membership membership_;
  StepLoop steps_;
  RateMeter rate_;
  Tombstones tombstones_;
  Sequences sequences_;
  std::map<RequestId, Announced> announced_;
  TimerQueue<RequestId> announced_ends_;  // when they are forgotten
  std::vector<Opening> openings_;         // in the order of their coming
  std::map<std::pair<RequestId, Epoch>, Quarantine> quarantines_;
  std::optional<BackendQueue> backends_;  // staging
  std::vector<Asking> asking_;            // in the order of their coming
  std::map<uint64_t, Copy> copies_;       // under way
  uint64_t next_copy_ = 1;
  std::map<CallId, RequestId> calls_;  // attached streams
  TimeUs drain_end_us_ = kNever;
  uint64_t output_tokens_ = 0;
  uint64_t finished_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler
