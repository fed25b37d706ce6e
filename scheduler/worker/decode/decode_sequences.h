// DecodeSequences: the requests to which a decode-worker has given blocks, until their routers were
// told their end: phase, output, and the router's stream. Part of DecodeCore, and used only on its
// thread. A call costs O(log requests), or the number of tokens that it sends.
//
// Tokens sampled before the router attaches are kept for it. A router that has not attached within
// the attach lease cannot attach later (TakeUnclaimed).
//
// Invariants (CheckInvariants names them, by DecodeCore's numbers):
//   4. Token indices on a stream are 0, 1, 2 … without gap: an attached stream has got all tokens;
//      each stream ends exactly once.
//   5. The counters over all requests agree with the requests.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
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
#include "scheduler/worker/decode/token_events.h"

namespace skein::scheduler {

struct DecodeSequence {
  enum class Phase {
    kReceiving,  // its KV
    kRunning,
    kPreempted,  // it runs later, its KV computed anew
    kBound,      // it runs in the bound group, which has its blocks
    kEnded
  };
  enum class Stream { kUnattached, kAttached, kClosed };
  struct Token {
    int64_t index = 0;
    int32_t token = 0;
    std::string payload;
  };

  SpecPtr spec;
  Epoch epoch;
  Phase phase = Phase::kReceiving;
  TimeUs arrived_us = 0;
  // Since when a first token of its prefill instance waits for a decode step; kNever: for none.
  TimeUs ready_us = kNever;
  bool committed = false;  // its KV was whole, or steps compute it; also after its end

  Stream stream = Stream::kUnattached;
  CallId call;  // when attached
  std::deque<Token> unsent;
  std::string prompt_logprobs;        // until sent
  std::optional<PrefillTimes> times;  // likewise

  std::shared_ptr<std::vector<int32_t>> output = std::make_shared<std::vector<int32_t>>();
  FinishReason reason = FinishReason::kError;
  absl::Status status;
  bool told = false;           // its end was reported to the orchestrator; set by DecodeCore
  bool unclaimed = false;      // no router came in time
  bool suspect = false;        // as AnnounceOf's: it runs in steps of its own
  bool engine_failed = false;  // in a step with it
  int64_t output_tokens = 0;   // sampled, the stop token included
  int32_t stop_token = -1;
  uint32_t preemptions = 0;
  TimeUs asked_us = kNever;  // when its router was asked last to move it (stream_moves.h)

  RequestId id() const { return spec->id; }
  // Its router has got none, as far as is known here.
  bool NoTokenSent() const { return output_tokens == static_cast<int64_t>(unsent.size()); }
  // Of prompt and output, so far.
  int64_t KnownTokens() const { return PromptTokens(*spec) + static_cast<int64_t>(output->size()); }
};

class DecodeSequences {
 public:
  using Phase = DecodeSequence::Phase;
  using Stream = DecodeSequence::Stream;

  // `emit` is called for each effect, before the call that causes it returns.
  explicit DecodeSequences(std::function<void(TokenEffect)> emit) : emit_(std::move(emit)) {}

  // A new one, receiving. Its router attaches until `attach_until_us`, by the listening clock.
  // REQUIRES: its id is not known.
  DecodeSequence& Add(const SpecPtr& spec, Epoch epoch, TimeUs now, TimeUs attach_until_us);
  void Erase(RequestId id);  // REQUIRES: it has ended

  DecodeSequence* Find(RequestId id);  // null: there is none
  const DecodeSequence* Find(RequestId id) const;
  DecodeSequence* Find(RequestId id, Epoch epoch);
  DecodeSequence& at(RequestId id) { return sequences_.at(id); }
  const DecodeSequence& at(RequestId id) const { return sequences_.at(id); }
  const std::map<RequestId, DecodeSequence>& all() const { return sequences_; }

  // Its KV is whole. REQUIRES: it receives.
  void Run(DecodeSequence& sequence, std::string prompt_logprobs,
           const std::optional<PrefillTimes>& times);
  // The next token. Says how the request ends with it, if it does; the caller ends it. REQUIRES: it
  // runs, here or in the group.
  std::optional<FinishReason> AddToken(DecodeSequence& sequence, int32_t token,
                                       const std::string& payload);
  void Preempt(DecodeSequence& sequence);  // REQUIRES: it runs
  void Resume(DecodeSequence& sequence);   // REQUIRES: it is preempted
  // The group runs it. REQUIRES: it is preempted, or the group has its KV, or it receives and
  // nobody writes its KV.
  void Bind(DecodeSequence& sequence);
  void Unbind(DecodeSequence& sequence);  // it is preempted again. REQUIRES: it is bound
  // REQUIRES: it has not ended.
  void End(DecodeSequence& sequence, FinishReason reason, const absl::Status& status);

  // The router came. REQUIRES: none has.
  void Attach(DecodeSequence& sequence, CallId call);
  // The router detached. Returns its sequence; null: no sequence has this call.
  DecodeSequence* Detach(CallId call);
  // One whose attach lease is over; its stream is closed now.
  DecodeSequence* TakeUnclaimed(TimeUs listening);
  // The same of this one now. REQUIRES: no router has attached, and its lease is not over.
  void GiveUpUnclaimed(DecodeSequence& sequence);
  TimeUs NextAttachEnd() const { return attach_ends_.Next(); }  // by the listening clock

  int64_t Count(Phase phase) const { return counts_[static_cast<size_t>(phase)]; }
  int64_t CountLive() const {
    return Count(Phase::kReceiving) + Count(Phase::kRunning) + Count(Phase::kPreempted) +
           Count(Phase::kBound);
  }
  int64_t CountUnclaimed() const { return unclaimed_; }  // ended, and no router has come yet
  absl::Status CheckInvariants() const;

 private:
  void Flush(DecodeSequence& sequence);  // what the attached stream has not got yet
  void Note(const DecodeSequence& sequence, SequenceNote::What what);  // if it is traced
  void SetPhase(DecodeSequence& sequence, Phase phase);

  const std::function<void(TokenEffect)> emit_;
  std::map<RequestId, DecodeSequence> sequences_;
  std::array<int64_t, 5> counts_{};  // by phase
  int64_t unclaimed_ = 0;
  TimerQueue<RequestId> attach_ends_;
  std::map<CallId, RequestId> calls_;  // attached streams
};

}  // namespace skein::scheduler
