// KvOut: transfers of prompts' KV from a prefill instance to decode instances. Part of PrefillCore,
// which says what to send and gets the outcome.
//
// Begin names the blocks that this instance will compute. Open calls OpenTransfer at the decode
// side, whose answer grants blocks: kOpened. The two may come in any order, and steps may run in
// between. After both, the handoff sender writes, layer by layer, under a lease that is renewed
// after each third of it; no put is posted after the lease's end. When the sender has put all
// blocks and the result (SetResult) is there, the transfer is committed. It ends with one Outcome.
//
// A commit that is never answered may have been taken, and the answer may be streaming. So it
// counts as committed, and the decode side decides: it has the commit, or the writer's lease ends
// there.
//
// The decode side may refuse OpenTransfer for lack of room, or may be out of reach: kRefused tells
// the owner, which closes the transfer and may open one elsewhere. What was begun stays begun.
//
// A decode side may be a bound group: its lead, which takes all calls, answers OpenTransfer with
// the blocks of every rank, in a layout of as many ranks. The sender puts each rank's heads there.
//
// A decode side that answers OpenTransfer with staging slots is written to through a staging buffer
// (scheduler/kv/staging_buffer_queue.h): acquired when the sender has something to put, given back
// when it has had nothing for a while. The sender tells the parts that arrived; they are told to
// the decode side one call at a time, and back to the sender when they were copied out.
//
// The owner's blocks may be reused only when Writing() is false: after Stop that is with the
// outcome kStopped.
//
// Invariants (CheckInvariants): no transfer is due before the time that is remembered for it; none
// writes that was not begun.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/kv/handoff_shape.h"
#include "scheduler/worker/kv_out/kv_out_events.h"

namespace skein::scheduler {

struct KvOutConfig {
  Incarnation incarnation;  // of this process
  HandoffShape shape;
  TimeUs rpc_timeout_us = kSecondUs;
  TimeUs acquire_timeout_us =
      2 * kSecondUs;  // the decode side answers AcquireStagingBuffer before this
  TimeUs retry_us = 50 * kMillisecondUs;  // between attempts
  int attempts = 3;                       // of OpenTransfer and Commit
};

class KvOut {
 public:
  struct Transfer {
    RequestId id;
    Epoch epoch;
    SpecPtr spec;
    std::string endpoint;         // of the decode instance
    InstanceId writer;            // this instance's name towards the decode side
    bool one_of_several = false;  // other instances write other parts of the prompt
    bool takes_blocks = false;    // the first of the request: only it can be refused
    std::string permit = {};      // Placed::permit
  };
  // What a prompt's computation gave; committed with the last of its KV.
  struct Result {
    bool has_token = false;
    int32_t token = 0;
    std::string payload;          // the sampled token; opaque here
    std::string prompt_logprobs;  // of all chunks; opaque here
    PrefillTimes times;           // handoff_us is added here, from
    TimeUs computed_us = 0;       // the end of the computation on
  };
  enum class End { kOpened, kRefused, kCommitted, kFailed, kStopped };
  struct Outcome {
    RequestId id;
    End end = End::kFailed;
    absl::Status status;    // of kFailed: what the request ends with; of kRefused: why
    HandoffPath path = {};  // of kCommitted
  };

  // `emit` is called for each effect, inside the call that has it.
  KvOut(KvOutConfig config, std::function<void(KvOutEffect)> emit)
      : config_(std::move(config)), emit_(std::move(emit)) {}

  // `blocks`, at least one, will be computed here. `more`: AddBlocks brings further ones. REQUIRES:
  // not begun; called before the first step with the sequence.
  void Begin(const SpecPtr& spec, Epoch epoch, std::vector<HandoffBlock> blocks, bool more);
  bool Begun(RequestId id) const { return begun_.count(id) > 0; }
  // REQUIRES: begun, with `more`.
  void AddBlocks(RequestId id, std::vector<HandoffBlock> blocks, bool more);
  // REQUIRES: no transfer of this request.
  void Open(const Transfer& transfer, TimeUs now);
  bool Has(RequestId id) const { return transfers_.count(id) > 0; }  // a transfer
  // All is computed. REQUIRES: kOpened came.
  void SetResult(RequestId id, Result result, TimeUs now);
  // The request ends before its commit: nothing more is begun. If the sender writes, it is stopped,
  // and kStopped follows. Idempotent; an unknown request is fine.
  void Stop(RequestId id);
  // Removes a refused transfer. The request stays begun. REQUIRES: !Writing(id).
  void Close(RequestId id);
  // Removes the transfer and what was begun. A later Begin starts from nothing. REQUIRES:
  // !Writing(id).
  void Forget(RequestId id);
  // The sender may touch the request's blocks.
  bool Writing(RequestId id) const;
  int64_t CountWriting() const { return writing_; }

  // Answers, and the sender's words. Those of unknown, ended or stopped transfers change nothing.
  void On(const OpenTransferReplied& event, TimeUs now);
  void On(const RenewReplied& event, TimeUs now);
  void On(const CommitReplied& event, TimeUs now);
  void On(const AcquireStagingBufferReplied& event, TimeUs now);
  void On(const TakePartReplied& event, TimeUs now);
  void On(const ReleaseStagingBufferReplied& event, TimeUs now);
  void On(const HandoffWaits& event, TimeUs now);
  void On(const HandoffPart& event, TimeUs now);
  void On(const HandoffIdle& event, TimeUs now);
  void On(const HandoffDone& event, TimeUs now);
  void On(const HandoffFailed& event, TimeUs now);
  void On(const HandoffStopped& event, TimeUs now);
  void RunTimers(TimeUs now);
  TimeUs NextDeadline() const { return timers_.Next(); }

  // Of transfers that have ended since the last call, in order.
  std::vector<Outcome> TakeOutcomes() { return std::exchange(outcomes_, {}); }

  absl::Status CheckInvariants() const;

 private:
  // A call to the decode side, repeated until an answer settles it. At most one attempt is in
  // flight; KvOut decides when and how often to retry.
  class Call {
   public:
    void Send(TimeUs now) {
      under_way_ = true;
      sent_us_ = now;
      due_us_ = kNever;
      ++attempts_;
    }
    bool TakeAnswer() { return std::exchange(under_way_, false); }  // false: a duplicate
    void SendAt(TimeUs at) { due_us_ = at; }  // schedules the first attempt or a retry

    bool under_way() const { return under_way_; }
    bool IsDue(TimeUs now) const { return now >= due_us_; }
    TimeUs due_us() const { return due_us_; }    // kNever: nothing to send
    TimeUs sent_us() const { return sent_us_; }  // of the latest attempt
    int attempts() const { return attempts_; }

   private:
    bool under_way_ = false;
    TimeUs sent_us_ = 0;
    TimeUs due_us_ = kNever;
    int attempts_ = 0;
  };

  struct Staging {
    enum class Buffer { kNone, kAsked, kHeld, kReleased };
    Buffer buffer = Buffer::kNone;
    bool waits = false;        // the sender has something to put
    uint64_t acquisition = 0;  // the last one's number
    Call about_buffer;
    uint64_t part = 0;  // the last one told
    Call about_part;
    std::vector<StagedBlock> telling;  // of the part that is told
    std::vector<StagedBlock> arrived;  // behind it
  };

  enum class Sender { kWaiting, kWriting, kWritten, kGone };

  struct Entry {
    Transfer transfer;
    std::optional<OpenTransferReply> granted;  // until it is begun
    Sender sender = Sender::kWaiting;
    bool stopped = false;    // by Stop, or by its outcome
    bool stop_sent = false;  // to the sender
    Call open;
    Call renew;
    TimeUs post_until_us = 0;  // this side's view of the lease's end
    std::optional<Staging> staging;
    std::vector<int64_t> bytes_per_layer;
    HandoffPath path;
    std::optional<Result> result;
    Call commit;
  };

  Entry* Find(RequestId id, Epoch epoch);
  Entry* FindLive(RequestId id, Epoch epoch);  // not stopped
  Entry* FindStaged(RequestId id, Epoch epoch);
  static TimeUs NextTimer(const Entry& entry);
  static HandoffPath PathOf(const Entry& entry, bool commit_unanswered);
  void Arm(const Entry& entry) { timers_.Set(entry.transfer.id, NextTimer(entry)); }
  void RunTimers(Entry& entry, TimeUs now);
  void Fail(Entry& entry, absl::Status status);
  void SetSender(Entry& entry, Sender sender);
  void SenderEnded(Entry& entry);
  absl::Status EndOf(const Entry& entry, const absl::Status& status) const;

  void CallOpen(Entry& entry, TimeUs now);
  void Granted(Entry& entry, OpenTransferReply reply, TimeUs now);
  absl::Status CheckTargets(const OpenTransferReply& reply, int64_t prompt_tokens) const;
  void StartWriting(Entry& entry, const OpenTransferReply& reply);
  void Renew(Entry& entry, TimeUs now);
  void MaybeCommit(Entry& entry, TimeUs now);
  // Staging: kv_out_staging.cc.
  void RunStagingTimers(Entry& entry, TimeUs now);
  void AcquireBuffer(Entry& entry, TimeUs now);
  void ReleaseBuffer(Entry& entry, TimeUs now);
  void CallAboutBuffer(Entry& entry, TimeUs now);
  void TellPart(Entry& entry, TimeUs now);
  bool Settle(Entry& entry, Call& call, const absl::Status& status, TimeUs now);

  const KvOutConfig config_;
  const std::function<void(KvOutEffect)> emit_;
  std::map<RequestId, Epoch> begun_;
  std::map<RequestId, Entry> transfers_;
  int64_t writing_ = 0;
  TimerQueue<RequestId> timers_;
  std::vector<Outcome> outcomes_;
};

}  // namespace skein::scheduler
