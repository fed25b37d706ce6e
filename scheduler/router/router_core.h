// RouterCore: the life of every request as its client sees it. One thread owns it.
//
// Life: queued (admission) -> submitted -> placed (token stream open) -> ended. A request ends
// exactly once, with Reject (nothing was done) or End. With its plan the router hears where the
// request was announced, and attaches there ahead: its first token need not wait until the router
// hears that the transfer is open. Such a stream may end without a token, which means nothing; the
// first token, or a complete answer, places the request as the orchestrator's message does. Until
// its client has received tokens, the orchestrator may plan it again under a later epoch: it goes
// from placed back to submitted. If a token stream fails before its first token, the request waits
// for the new plan.
//
// A cell is an orchestrator with its instances. The router and each orchestrator tell each other
// all on one stream (orchestrator_session.h). A request is submitted to the cell that
// cell_sessions.h chooses, and stays there, with all its plans, as long as that orchestrator
// answers. It moves:
//   - when its cell refuses it before anything was begun: it is offered to kCellsTried cells in
//   all,
//     then its client gets the refusal, 429 if one was for lack of room;
//   - when its cell is lost, and it is not placed or its token stream failed before the first
//   token.
// It never returns to a cell that it left. That cell is told that it has ended there, and nothing
// that still comes from there is heard: so no client gets the tokens of two runs. What streams goes
// on without its orchestrator.
//
// While no cell can take it, a request waits, for orchestrator_wait_us and until its deadline at
// most; so does one whose cell is not ready and not lost yet. The next stream to a cell begins with
// what the router has there; what its orchestrator does not know is submitted anew, unless it
// streams. What streams and is known to no orchestrator is submitted anew if its stream fails
// before the first token.
//
// Invariants, by number (CheckInvariants names them):
//   1. running <= max_streams, queued <= max_queued; nothing is queued while a stream is free.
//   2. Delivered token indices are 0, 1, 2 …; a gap or a repetition ends the request with INTERNAL
//      and is counted.
//   3. Each request ends exactly once; nothing is delivered after.
//   4. The snapshot counts the requests there are, by state.
//   5. Every request has its deadline; it waits for an orchestrator, under a second time, exactly
//   if
//      its token stream was lost, or if it is submitted and its cell is not ready.
//   6. A request has a cell exactly if it was submitted there, and none in which it was before.
//   7. A placed request has, or had, its token stream; another one has at most one ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/router/cell_sessions.h"
#include "scheduler/router/orchestrator_session.h"

namespace skein::scheduler {

// ---- events ----

struct Arrived {  // a client's request; the shell numbers them, ids are never used twice
  HeadPtr spec;
  bool alone = false;  // one prefill instance computes its prompt, whatever the policy
  // Requests with the same key go to the same cell while it has room; 0: none. Equal at all
  // routers.
  uint64_t affinity = 0;
};
// From here on the router connects to the orchestrators.
struct Join {
  RouterIdentity identity;
};
// It says goodbye to the orchestrators. Its requests should have ended before.
struct Leave {};
// What the shell adds to the load has changed.
struct ReportSoon {};
// Of the stream to the orchestrator of `cell`; in the order in which they came on it.
struct Welcomed {
  RouterWelcome welcome;
  size_t cell = 0;
};
struct RouterReportTaken {
  CellReport report;
  size_t cell = 0;
};
struct RouterGoodbyeTaken {
  size_t cell = 0;
};
struct LinkBroken {  // it could not be opened, or is over
  absl::Status status;
  size_t cell = 0;
};
struct PlanUpdateReceived {
  RequestId id;
  PlanUpdate update;
  size_t cell = 0;
};
struct TokenReceived {
  RequestId id;
  Epoch epoch;
  int64_t index = 0;
  int32_t token = 0;
  std::string payload;
  std::string prompt_logprobs;
  std::optional<PrefillTimes> times = {};  // with index 0
};
struct FinishedReceived {
  RequestId id;
  Epoch epoch;
  FinishReason reason = FinishReason::kError;
  absl::Status status;
  int64_t output_tokens = 0;
  int32_t stop_token = -1;
  std::string prompt_logprobs;             // when max_tokens is 0
  std::optional<PrefillTimes> times = {};  // likewise
};
struct TokenStreamLost {  // by itself; after FinishedReceived it is ignored
  RequestId id;
  Epoch epoch;
  absl::Status status;
};
struct ClientGone {
  RequestId id;
};
struct StopMatched {  // the shell's detokeniser saw a stop string
  RequestId id;
};
struct RouterTick {};

using RouterEvent =
    std::variant<Arrived, PlanUpdateReceived, TokenReceived, FinishedReceived, TokenStreamLost,
                 ClientGone, StopMatched, Join, Leave, ReportSoon, Welcomed, RouterReportTaken,
                 RouterGoodbyeTaken, LinkBroken, RouterTick>;

// ---- effects ----

struct Reject {  // RESOURCE_EXHAUSTED; before any work was done
  RequestId id;
  absl::Status status;
  TimeUs retry_after_us = 0;
};
struct SendSubmit {  // on the stream to the orchestrator of `cell`
  HeadPtr spec;
  bool alone = false;
  bool accepted = false;       // by an orchestrator before
  int64_t failed_engines = 0;  // that the router was told of
  size_t cell = 0;
};
struct RequestAccepted {  // for the client, once at most: it will not be refused any more
  RequestId id;
};
struct OpenTokens {  // to the decode instance at `endpoint`
  RequestId id;
  Epoch epoch;
  InstanceId decode;
  std::string endpoint;
  size_t cell = 0;     // whose instance it is
  bool ahead = false;  // its transfer may not be open yet
};
struct CloseTokens {
  RequestId id;
  Epoch epoch;
};
struct DeliverToken {
  RequestId id;
  int64_t index = 0;
  int32_t token = 0;
  std::string payload;
  std::string prompt_logprobs;  // with index 0 only
};
// How long a request took before its first token, each by the clock of the process named.
struct RequestTimes {
  TimeUs admission_us = 0;              // router: from its arrival to its submission
  TimeUs plan_us = 0;                   // orchestrator: from the submission to its (last) plan
  std::optional<PrefillTimes> prefill;  // none: nothing came from its decode instance
};
struct End {  // to the client (no client to tell after ClientGone); nothing follows
  RequestId id;
  FinishReason reason = FinishReason::kError;
  absl::Status status;  // OK for stop and length
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;    // sampled, a stop token included
  int32_t stop_token = -1;      // the sampled stop token, if that was the reason
  std::string prompt_logprobs;  // when max_tokens is 0
  bool begun = false;           // it was placed: instances may have worked for it
  RequestTimes times;
};

using RouterEffect = std::variant<Reject, SendSubmit, SendRouterEnd, RequestAccepted, OpenTokens,
                                  CloseTokens, DeliverToken, End, OpenLink, CloseLink,
                                  SendRouterReport, SendRouterGoodbye, RouterHasLeft>;

struct RouterConfig {
  size_t cells = 1;  // orchestrators
  int64_t max_streams = 256;
  int64_t max_queued = 256;
  TimeUs request_deadline_us = 600 * kSecondUs;  // when the spec names none; the cap if it does
  TimeUs replan_wait_us = 5 * kSecondUs;         // for the orchestrator, when a stream failed early
  TimeUs orchestrator_wait_us = 30 * kSecondUs;  // for a stream to one
  TimeUs min_retry_after_us = kSecondUs;
  TimeUs max_retry_after_us = 60 * kSecondUs;
  SessionConfig session;
};

// Kept up to date event by event, so that a look at it costs nothing like the number of requests.
struct RouterSnapshot {
  int64_t queued = 0;     // not submitted yet
  int64_t submitted = 0;  // no decode instance yet
  int64_t streaming = 0;
  TimeUs oldest_arrival_us = kNever;  // of those queued; kNever: none is
  uint64_t accepted = 0;
  uint64_t rejected = 0;
  uint64_t finished = 0;  // stop or length
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t index_errors = 0;   // gaps and repetitions
  uint64_t moved_refused = 0;  // to another cell, since theirs refused them
  uint64_t moved_lost = 0;     // since theirs was lost
  std::vector<bool> ready;     // by cell
  struct OfModel {
    int64_t queued = 0, submitted = 0, streaming = 0;
  };
  std::map<std::string, OfModel> models;  // of which there was a request
};

class RouterCore {
 public:
  static constexpr int kCellsTried = 3;  // of one request that is refused

  explicit RouterCore(const RouterConfig& config);

  // Total: any event in any state is safe.
  std::vector<RouterEffect> Handle(const RouterEvent& event, TimeUs now);
  // When the next RouterTick is due, kNever if none is.
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  // It holds at any time until the next event: `now` is what other cores need.
  const RouterSnapshot& Snapshot(TimeUs /*now*/ = 0) const { return snapshot_; }
  // The state of a request's record, by name; empty when there is none. For tests and people.
  std::string_view StateOf(RequestId id) const;
  // Changes with each event that changes the snapshot: tokens do not.
  uint64_t snapshot_version() const { return snapshot_version_; }

 private:
  enum class State { kQueued, kSubmitted, kPlaced };
  // What the orchestrator of its cell knows of a request.
  enum class Known {
    kUnsent,   // nothing: it has no cell
    kSent,     // it was submitted, or listed in a hello and not named as unknown
    kUnknown,  // it was placed by another orchestrator than the present one
    kOver,     // that it has ended at its decode instance
  };

  // A request's token stream, under its epoch, at its decode instance.
  enum class Tokens {
    kNone,   // not placed, and no stream was asked for, or it ended
    kAhead,  // not placed, and asked for
    kOpen,   // placed
    kOver,   // placed, and ended by itself
  };

  struct Request {
    HeadPtr spec;
    State state = State::kQueued;
    bool alone = false;
    uint64_t affinity = 0;
    std::optional<size_t> cell;  // to which it was submitted; none: it waits for one
    std::set<size_t> left;       // cells in which it has been before
    Known known = Known::kUnsent;
    bool accepted = false;  // an orchestrator has said so, or planned it
    bool taken = false;     // that of its cell has
    int refusals = 0;       // cells that refused it
    // Engines that failed in a step with it, in any cell: the next orchestrator has to know.
    int64_t failed_engines = 0;
    absl::Status refusal;  // what it ends with if no cell takes it
    Tokens tokens = Tokens::kNone;
    Epoch epoch;
    InstanceId decode;   // where its token stream is, or was last
    bool begun = false;  // it has been placed, under any epoch
    int64_t delivered = 0;
    TimeUs arrived_us = 0;
    TimeUs submitted_us = 0;
    TimeUs first_token_us = -1;  // -1: none came
    RequestTimes times;
    TimeUs deadline_us = kNever;
    // Not OK: the token stream failed before its first token. What the request ends with if it is
    // not planned anew in time.
    FinishReason lost_reason = FinishReason::kError;
    absl::Status lost;
  };

  void On(const Arrived& event);
  void On(const PlanUpdateReceived& event);
  void On(const TokenReceived& event);
  void On(const FinishedReceived& event);
  void On(const TokenStreamLost& event);
  void On(const ClientGone& event);
  void On(const StopMatched& event);
  void On(const Join& event);
  void On(const Leave& event) { cells_.Leave(now_); }
  void On(const ReportSoon& event) { cells_.ReportSoon(now_); }
  void On(const Welcomed& event);
  void On(const RouterReportTaken& event);
  void On(const RouterGoodbyeTaken& event);
  void On(const LinkBroken& event);
  void On(const RouterTick& event) {}

  void Apply(Request& request, const Planned& planned);
  void Apply(Request& request, const Placed& placed);
  void Apply(Request& request, const Failed& failed);
  void Apply(Request& request, const Accepted& accepted);
  void Accept(Request& request);
  void AttachAhead(Request& request, const Planned& planned);
  void Place(Request& request, Epoch epoch, InstanceId decode);
  void CloseStream(Request& request);  // if it is open
  void Apply(Request& request, const PlanEnded& ended);
  void TakeRefusal(Request& request, const absl::Status& status);
  // Cells: router_cells.cc.
  bool Ready(const Request& request) const;  // its cell
  // Sends it, or lets it wait for a cell.
  void Submit(Request& request);
  void SubmitAnew(Request& request);  // its client has nothing of it
  // To another cell. False: there is none.
  bool Move(Request& request, const absl::Status& why);
  void AwaitCell(const Request& request);
  void StopWaiting(const Request& request);
  void NoteBroken(size_t cell);
  const absl::Status& WhyUnreachable(const Request& request) const;
  void Settle(Request& request);  // one that is unsettled, if a cell can take it now
  void PlaceUnsettled();
  void TakeKnown(Request& request, bool unknown);
  void TakeLostCells();
  void RunSessions();
  void RunSession(size_t cell);
  void Send(SessionEffect effect, size_t cell);
  void TellEnd(size_t cell, RouterEnd end);
  std::vector<RouterRequest> RequestsTold(size_t cell) const;
  RouterEnd EndOf(const Request& request, const End& end, bool client_gone) const;
  void Lose(Request& request, FinishReason reason, absl::Status status);
  void Keep(Request& request);  // it waits no more, and its stream is not lost
  void SetState(Request& request, State state);
  void Count(const Request& request, int64_t change);  // in its state
  Request* Find(RequestId id);
  Request* FindStream(RequestId id, Epoch epoch);  // with a stream, under this epoch
  void FailIndex(Request& request, const std::string& what);
  void Finish(Request& request, FinishReason reason, absl::Status status, int32_t stop_token = -1,
              std::string prompt_logprobs = {}, bool client_gone = false);  // erases it
  void RunTimers();
  void AdmitQueued();
  TimeUs RetryAfter() const;

  RouterConfig config_;
  TimeUs now_ = 0;
  std::vector<RouterEffect> effects_;  // of the Handle under way
  std::map<RequestId, Request> requests_;
  int64_t running_ = 0;          // requests that are not queued
  std::deque<RequestId> queue_;  // ids of queued requests, by arrival
  TimerQueue<RequestId> deadlines_;
  TimerQueue<RequestId> waits_;    // for an orchestrator
  std::set<RequestId> unsettled_;  // of these, those whose cell is not ready, or that have none
  CellSessions cells_;
  size_t sessions_left_ = 0;        // that have said goodbye
  std::deque<TimeUs> recent_ends_;  // of requests that had been submitted, for RetryAfter
  RouterSnapshot snapshot_;
  uint64_t snapshot_version_ = 0;
};

}  // namespace skein::scheduler
