// TokenStreams: a decode-worker's end of its token streams, one for each router. Takes what the
// routers ask for to the core, and collects what the core emits into one message per stream and
// step. One thread owns it; no I/O.
//
// Credit. A request's tokens are sent while its router has granted credit for them; the others wait
// here, at most the request's max_tokens, and hold up no other request. The end of a request needs
// no credit, but comes after its tokens. That a router is asked to move a request (AskToMove) needs
// none either, and waits for no token.
//
// Breaks. A router that says so (AttachTokens::from_index) attaches again when its stream breaks.
// What it may ask for again, its last token and all that follow, and the end, is kept here until it
// has acknowledged them: with its credit, and the end by detaching. When the stream ends, such a
// request is held for hold_us: its core goes on, and what that emits is kept. An attach on another
// stream goes on where the router is. It also takes over from a stream that this worker does not
// know to be broken yet, but not from a later one of the router. All other requests end with their
// stream, and so does a held one when the time is over: then its blocks are freed. A dead router's
// blocks must be free within 2 s.
//
// Beats. A router tells the orchestrator which instances it hears, so a stream with requests on
// which nothing else is sent gets an empty message: at once when a request attaches, and then every
// sixth of the instance's lease, at the latest every third. A router waits for two thirds
// (scheduler/router/heard_instances.h). One that may have attached again on a new stream waits for
// far less, so the first message on it is answered at once.
//
// Use: give each event of Take, Close and Tick to DecodeCore::Handle, and all EmitToken, EndStream
// and AskToMove effects to Emit, End and Ask; then, for each stream of TakeReady, send Next while
// HasNext and the transport takes a message. A stream whose transport is busy is sent when it is
// not any more: what came meanwhile is merged.
//
// Invariants (CheckInvariants): a sequence is in its stream's queue exactly when it has something
// that may be sent, and in its stream's map by its id and epoch; or it has no stream, and a time
// until which it is held.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/base/token_stream.h"
#include "scheduler/worker/decode/decode_core.h"

namespace skein::scheduler {

class TokenStreams {
 public:
  // Requests attached to one stream, those included whose end waits to be sent.
  static constexpr size_t kSequencesMax = size_t{1} << 16;
  // A message is closed when it holds so many bytes of tokens; one token more may be in it.
  static constexpr size_t kBatchBytesMax = size_t{1} << 20;
  static constexpr TimeUs kHoldUs = 1500 * kMillisecondUs;

  // `hold_us` 0: all requests end with their stream.
  explicit TokenStreams(TimeUs hold_us = kHoldUs) : hold_us_(hold_us) {}

  // This process. Until then any that a router means is taken for this one.
  void SetProcess(Incarnation self) { self_ = self; }
  // The orchestrator has named the instance's lease.
  void SetLease(TimeUs lease_us) { beat_us_ = std::max<TimeUs>(lease_us / 12, 1); }

  // What a router asks for on `stream`, which is new if it is not known. Appends the core's events.
  // RESOURCE_EXHAUSTED: the stream would have too many requests; nothing was done, end it.
  absl::Status Take(TokenStreamId stream, const TokenStreamRequest& request,
                    std::vector<DecodeEvent>* events);
  // The stream has ended: so have its requests, or they are held. Unknown streams are fine.
  std::vector<DecodeEvent> Close(TokenStreamId stream, TimeUs now);

  // The core's effects. Those of a request that was detached meanwhile are dropped.
  void Emit(EmitToken effect);
  void End(EndStream effect);
  void Ask(const AskToMove& effect);

  // Ends what was held for long enough, and gives a beat to the streams on which nothing was sent
  // since the last one.
  std::vector<DecodeEvent> Tick(TimeUs now);
  TimeUs NextDeadline() const {
    return sequences_.empty() ? kNever : std::min(next_beat_us_, held_.Next());
  }

  // The streams that have had something to send since the last call.
  std::vector<TokenStreamId> TakeReady();
  bool HasNext(TokenStreamId stream) const;
  // The next message. REQUIRES: HasNext.
  TokenBatch Next(TokenStreamId stream);

  // Whose end was not sent yet.
  size_t sequences() const { return sequences_.size() - ends_sent_; }
  size_t held() const { return held_.size(); }
  absl::Status CheckInvariants() const;

 private:
  using Key = std::pair<RequestId, Epoch>;
  struct Token {
    int32_t token = 0;
    std::string payload;
  };
  struct Sequence {
    TokenStreamId stream;  // 0: none, it is held
    RequestId id;
    Epoch epoch;
    bool kept = false;            // until acknowledged; else until sent
    TokenStreamId router_stream;  // the router's number of it
    int64_t credit = 0;
    int64_t first_index = 0;  // of the first in `tokens`
    int64_t next_index = 0;   // of the first that is to be sent
    std::deque<Token> tokens;
    std::string prompt_logprobs;  // with token 0, or the end
    std::optional<PrefillTimes> times;
    std::optional<FinishedTokens> finished;
    bool end_sent = false;
    bool leaving = false;  // its router is to be asked to move it
    bool queued = false;   // in its stream's queue

    int64_t end_index() const { return first_index + static_cast<int64_t>(tokens.size()); }
    bool HasUnsent() const { return next_index < end_index(); }
    bool Sendable() const {
      if (stream == TokenStreamId{}) return false;
      return leaving || (HasUnsent() ? credit > 0 : finished.has_value() && !end_sent);
    }
  };
  struct Stream {
    std::map<Key, CallId> attached;
    std::deque<CallId> queue;  // of those that have something to send
    bool sent = false;         // a message, since the last Tick
    bool beat = false;         // an empty message is to be sent, if there is no other
  };

  void Attach(TokenStreamId stream, const AttachTokens& attach, std::vector<DecodeEvent>* events);
  Sequence& Add(TokenStreamId stream, const AttachTokens& attach, bool kept);
  bool ForgetRefused(CallId call, std::vector<DecodeEvent>* events);  // if it was
  void TakeOver(TokenStreamId stream, CallId call, const AttachTokens& attach,
                std::vector<DecodeEvent>* events);
  void Refuse(TokenStreamId stream, const AttachTokens& attach, absl::Status status);
  void AddCredit(Stream& stream, const CreditTokens& credit);
  static void Acknowledge(Sequence& sequence, int64_t received);
  void Detach(Stream& stream, const DetachTokens& detach, std::vector<DecodeEvent>* events);
  void Leave(CallId call, Sequence& sequence);                // its stream, or the held ones
  void Erase(CallId call, std::vector<DecodeEvent>* events);  // what has left
  void QueueIfSendable(CallId call, Sequence& sequence);
  static SequenceTokens TakeFrom(Sequence& sequence, size_t* bytes);
  void NoteSent(CallId call, Sequence& sequence);
  absl::Status CheckHeld() const;

  const TimeUs hold_us_;
  Incarnation self_;
  TimeUs beat_us_ = 250 * kMillisecondUs;
  TimeUs next_beat_us_ = 0;
  std::map<TokenStreamId, Stream> streams_;
  std::map<CallId, Sequence> sequences_;
  std::map<Key, CallId> kept_;  // of the sequences that are
  TimerQueue<CallId> held_;
  size_t ends_sent_ = 0;  // and not acknowledged
  std::set<TokenStreamId> ready_;
  uint64_t last_call_ = 0;
};

}  // namespace skein::scheduler
