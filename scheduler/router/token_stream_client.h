// TokenStreamClient: a router's end of its token streams, one to each decode-worker. Knows which
// requests are attached where, grants credit as their tokens are taken, and says when a stream is
// to be opened. One thread owns it; no I/O.
//
// Credit. A request may have kCredit tokens in transit. The router grants credit for tokens that
// arrived, half of kCredit at a time, but not while the request is paused. So a client that does
// not read holds up only its own tokens, at the worker.
//
// A stream that ends takes all its requests with it, unless they are attached again. The next one
// to that endpoint is opened by the next Attach: at once if anything had come on the last one, else
// after a pause that doubles from kBackoffMinUs to kBackoffMaxUs.
//
// Breaker (reattach_wait_us > 0). After kFailuresMax streams in a row on which nothing came, a
// decode-worker is not waited for: while its breaker is open, and while the one try is under way
// that it allows after each pause, a request that is attached there is lost with the next Tick, as
// one whose instance was not reached. Another process at the same endpoint begins anew.
//
// Attaching again (reattach_wait_us > 0). A stream that broke says nothing about its worker. If
// anything had come on it, the next one is opened at once, and asks for the rest of each request:
// the worker holds them for a while (scheduler/worker/token_streams.h). The last token that was
// received is asked for again, so that the core can compare it. A worker that has gone refuses the
// connection, or nothing comes on the new stream for reattach_wait_us; a request that the worker
// does not know, it ends. Then, and when kBreaksMax streams in a row broke without a new token of
// the request, it is lost.
//
// Use: after any call, open the streams of TakeOpens, and for each of TakeReady send Next while
// HasNext and the transport takes a message. Every stream that was opened is given to Ended once.
//
// It also knows which decode instances are heard (heard_instances.h); `heard` tells the
// orchestrators so, with each hello and report.
//
// Invariants (CheckInvariants): every attached request is in the set of its endpoint; an endpoint
// with requests but no stream has a time at which one is opened; one that has to answer has a
// stream; those of HeardInstances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/peer_breaker.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/base/token_stream.h"
#include "scheduler/router/heard_instances.h"

namespace skein::scheduler {

class TokenStreamClient {
 public:
  static constexpr int64_t kCredit = 128;
  static constexpr TimeUs kBackoffMinUs = 50 * kMillisecondUs;
  static constexpr TimeUs kBackoffMaxUs = kSecondUs;
  // A worker that lives answers within a round trip. Another instance may go on after this.
  static constexpr TimeUs kReattachWaitUs = 500 * kMillisecondUs;
  static constexpr int kBreaksMax = 3;
  static constexpr int kFailuresMax = 2;
  // Ends that a busy stream acknowledges with its next message, or when there are so many.
  static constexpr size_t kEndsMax = 32;

  struct Open {
    TokenStreamId stream;
    std::string endpoint;
  };
  struct Lost {
    RequestId id;
    Epoch epoch;
    bool unreached = false;  // it was not even asked for: see Breaker
  };

  // Where a request's tokens come from.
  struct Source {
    std::string endpoint;
    DecodePlace place;
    bool ahead = false;  // it may have no blocks there yet (AttachTokens)
  };

  // A part of a message that came.
  struct Part {
    bool attached = false;  // it is of a request that is attached there: hand it on; else drop it
    int64_t repeated = 0;   // so many of its first tokens came before, and were asked for again
  };

  // `reattach_wait_us` 0: nothing is attached again.
  explicit TokenStreamClient(int64_t credit = kCredit, TimeUs reattach_wait_us = 0)
      : credit_(credit), reattach_wait_us_(reattach_wait_us) {}

  // Asks the decode-worker for a request's tokens. An older epoch of it is detached.
  void Attach(RequestId id, Epoch epoch, const Source& source, std::string traceparent, bool paused,
              TimeUs now);
  // Unknown and ended requests are fine, here and below. Nothing of it is received any more.
  void Detach(RequestId id, Epoch epoch);
  void DetachAll();
  void SetPaused(RequestId id, bool paused);

  // A message came on `stream`. Each of its parts is given to Receive.
  void Received(TokenStreamId stream, TimeUs now);
  // After its end a request is attached no more.
  Part Receive(TokenStreamId stream, const SequenceTokens& tokens);
  // The stream has ended, however. Returns the requests that are lost with it.
  std::vector<Lost> Ended(TokenStreamId stream, TimeUs now);

  // Opens what is due. REQUIRES that all earlier messages were handled. Returns the requests that
  // are lost because their worker did not answer when they were attached again, or is not tried.
  std::vector<Lost> Tick(TimeUs now);
  TimeUs NextDeadline() const;  // of a Tick; kNever: none

  std::vector<Open> TakeOpens();
  std::vector<TokenStreamId> TakeReady();
  bool HasNext(TokenStreamId stream) const;
  TokenStreamRequest Next(TokenStreamId stream);

  HeardInstances& heard() { return heard_; }
  size_t attached() const { return attached_.size(); }
  absl::Status CheckInvariants() const;

 private:
  // An endpoint: with a stream, or between two.
  struct Link {
    std::string endpoint;
    TokenStreamId stream;   // 0: none is open
    bool received = false;  // anything, on this stream
    // Its failures are streams on which nothing came.
    PeerBreaker breaker{kFailuresMax, kBackoffMinUs, kBackoffMaxUs};
    Incarnation tried;   // the process that was attached to last
    TimeUs open_us = 0;  // not before; without a stream
    std::set<RequestId> requests;
    TokenStreamRequest unsent;
  };
  struct Attached {
    Epoch epoch;
    Link* link = nullptr;
    DecodePlace place;
    std::string traceparent;
    bool ahead = false;
    int64_t owed = 0;  // credit to grant
    bool paused = false;
    int64_t received = 0;  // tokens
    bool again = false;    // attached again, and no token came since
    int breaks = 0;        // of its streams, since a new token came
  };

  Link& LinkTo(const std::string& endpoint, TimeUs now);
  bool Reaches(Link& link, const DecodePlace& place, TimeUs now);
  void OpenDue(TimeUs now);
  void OpenStream(Link& link);
  AttachTokens AttachOf(RequestId id, Attached& attached) const;
  bool AttachAgain(RequestId id, Attached& attached);  // false: it is lost
  void Forget(std::map<RequestId, Attached>::iterator it);
  void AcknowledgeEnd(Link& link, const SequenceTokens& tokens);
  void Grant(RequestId id, Attached& attached, int64_t at_least);
  void MarkReady(const Link& link);

  const int64_t credit_;
  const TimeUs reattach_wait_us_;
  uint64_t last_stream_ = 0;
  std::map<std::string, Link> links_;
  std::map<TokenStreamId, Link*> streams_;
  TimerQueue<std::string> waiting_;      // endpoints with requests and no stream
  TimerQueue<std::string> answers_due_;  // endpoints that were asked again, and have not answered
  std::map<RequestId, Attached> attached_;
  std::vector<Lost> unreached_;  // since the last Tick, which is due then
  TimeUs unreached_us_ = kNever;
  std::vector<Open> opens_;
  std::set<TokenStreamId> ready_;
  HeardInstances heard_;
};

}  // namespace skein::scheduler
