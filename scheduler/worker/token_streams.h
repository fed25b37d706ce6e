// TokenStreams: a decode-worker's end of its token streams, one for each router. Takes what the
// routers ask for to the core, and collects what the core emits into one message per stream and
// step. One thread owns it; no I/O.
//
// Credit. A request's tokens are sent while its router has granted credit for them; the others wait
// here, at most the request's max_tokens, and hold up no other request. The end of a request needs
// no credit, but comes after its tokens. That a router is asked to move a request (AskToMove) needs
// none either, and waits for no token.
//
// Beats. A router tells the orchestrator which instances it hears, so a stream with requests on
// which nothing else is sent gets an empty message: at once when a request attaches, and then every
// sixth of the instance's lease, at the latest every third. A router waits for two thirds
// (scheduler/router/heard_instances.h).
//
// Use: give each event of Take and Close to DecodeCore::Handle, and all EmitToken, EndStream and
// AskToMove effects to Emit, End and Ask; then, for each stream of TakeReady, send Next while
// HasNext and the transport takes a message. A stream whose transport is busy is sent when it is
// not any more: what came meanwhile is merged.
//
// Invariants (CheckInvariants): a sequence is in its stream's queue exactly when it has something
// that may be sent, and in its stream's map by its id and epoch.
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
#include "scheduler/base/time.h"
#include "scheduler/base/token_stream.h"
#include "scheduler/worker/decode/decode_core.h"

namespace skein::scheduler {

class TokenStreams {
 public:
  // Requests attached to one stream, those included whose end waits to be sent.
  static constexpr size_t kSequencesMax = size_t{1} << 16;
  // A message is closed when it holds so many bytes of tokens; one token more may be in it.
  static constexpr size_t kBatchBytesMax = size_t{1} << 20;

  // The orchestrator has named the instance's lease.
  void SetLease(TimeUs lease_us) { beat_us_ = std::max<TimeUs>(lease_us / 6, 1); }

  // What a router asks for on `stream`, which is new if it is not known. Appends the core's events.
  // RESOURCE_EXHAUSTED: the stream would have too many requests; nothing was done, end it.
  absl::Status Take(TokenStreamId stream, const TokenStreamRequest& request,
                    std::vector<DecodeEvent>* events);
  // The stream has ended: so have its requests. Unknown streams are fine.
  std::vector<DecodeEvent> Close(TokenStreamId stream);

  // The core's effects. Those of a request that was detached meanwhile are dropped.
  void Emit(EmitToken effect);
  void End(EndStream effect);
  void Ask(const AskToMove& effect);

  // Gives a beat to the streams on which nothing was sent since the last one.
  void Tick(TimeUs now);
  TimeUs NextDeadline() const { return sequences_.empty() ? kNever : next_beat_us_; }

  // The streams that have had something to send since the last call.
  std::vector<TokenStreamId> TakeReady();
  bool HasNext(TokenStreamId stream) const;
  // The next message. REQUIRES: HasNext.
  TokenBatch Next(TokenStreamId stream);

  size_t sequences() const { return sequences_.size(); }
  absl::Status CheckInvariants() const;

 private:
  struct Token {
    int32_t token = 0;
    std::string payload;
  };
  struct Sequence {
    TokenStreamId stream;
    RequestId id;
    Epoch epoch;
    int64_t credit = 0;
    int64_t next_index = 0;  // of the first in `unsent`
    std::deque<Token> unsent;
    std::string prompt_logprobs;
    std::optional<PrefillTimes> times;
    std::optional<FinishedTokens> finished;
    bool leaving = false;  // its router is to be asked to move it
    bool queued = false;   // in its stream's queue

    bool Sendable() const {
      return leaving || (unsent.empty() ? finished.has_value() : credit > 0);
    }
  };
  struct Stream {
    std::map<std::pair<RequestId, Epoch>, CallId> attached;
    std::deque<CallId> queue;  // of those that have something to send
    bool sent = false;         // a message, since the last Tick
    bool beat = false;         // an empty message is to be sent, if there is no other
  };

  void Attach(TokenStreamId stream, const AttachTokens& attach, std::vector<DecodeEvent>* events);
  void AddCredit(Stream& stream, const CreditTokens& credit);
  void Detach(Stream& stream, const DetachTokens& detach, std::vector<DecodeEvent>* events);
  void QueueIfSendable(CallId call, Sequence& sequence);
  SequenceTokens TakeFrom(Sequence& sequence, size_t* bytes);

  TimeUs beat_us_ = 500 * kMillisecondUs;
  TimeUs next_beat_us_ = 0;
  std::map<TokenStreamId, Stream> streams_;
  std::map<CallId, Sequence> sequences_;
  std::set<TokenStreamId> ready_;
  uint64_t last_call_ = 0;
};

}  // namespace skein::scheduler
