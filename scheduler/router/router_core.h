// RouterCore: the life of every request as its client sees it. One thread owns it.
//
// Life: queued (admission) -> submitted -> placed (token stream open) -> ended. A request ends
// exactly once, with Reject (nothing was done) or End. The plan tells the router where the request
// was announced, and the router attaches there ahead: so the first token need not wait until the
// router hears that the transfer is open. Such a stream may end without a token; that changes
// nothing. The first token, or a complete answer, places the request just as the orchestrator's
// message does. Until its client has received tokens, the orchestrator may plan it again under a
// later epoch: it goes from placed back to submitted. If a token stream fails before its first
// token, the request waits for the new plan.
//
// A cell is an orchestrator with its instances. The router has one stream to each orchestrator, for
// all messages (orchestrator_session.h). A request is submitted to the cell that
// cell_sessions.h chooses, and stays there, with all its plans, as long as that orchestrator
// answers. It moves:
//   - when its cell refuses it before anything was begun. It is offered to at most kCellsTried
//     cells; then its client gets the refusal, a 429 if one of them was for lack of room;
//   - when its cell is lost, and the request is not placed or its token stream failed before the
//     first token.
// It never returns to a cell that it left. That cell is told that the request has ended there, and
// the router ignores what still comes from there, so no client gets the tokens of two runs. A
// request that streams continues without its orchestrator.
//
// Resuming. An *attempt* at a request is lost when its instances die, leave or are cut off, or its
// plan is lost after tokens were sent. If the request was accepted, the next attempt begins, under
// an id of its own, with the prompt and the tokens that the client has: it samples the next token
// by the index that this has in the answer, so the client sees a pause and then the rest of the
// same answer. attempt_losses.h says when, and when no more. A request that fails by itself
// (INVALID_ARGUMENT, INTERNAL), or that its orchestrator condemns, is not tried again.
//
// A budget (retry_budget.h) bounds what these attempts add to the load of a cluster that goes on
// losing them: an attempt that does not follow a first loss, or tokens, waits for it.
//
// Before that, the client of token streams (token_stream_client.h) attaches again to an instance
// whose stream broke. What it asks for again is compared here with what was delivered.
//
// Moving. A decode instance that drains asks for it, stream by stream, where others have room. Then
// the attempt is given up by choice, which is no loss of the request, and the next one begins at
// once. The old stream is not kept until the new one has its first token: whenever the client is
// switched, the new instance has to compute the tokens that the old one sent meanwhile, so the
// pause is as long, and both would hold blocks. A request that could not go on elsewhere now stays:
// the instance asks again, and its streams end with its grace at the latest.
//
// While no cell can take a request, it waits: at most orchestrator_wait_us, and not beyond its
// deadline. So does a request whose cell is neither ready nor lost. The next stream to a cell
// begins with the list of the requests that the router has there. Those that its orchestrator does
// not know are submitted again, unless they stream. A request that streams and that no orchestrator
// knows is submitted again if its stream fails: as it is before its first token, as a further
// attempt after it.
//
// Invariants, by number (CheckInvariants names them):
//   1. running <= max_streams, queued <= 2 max_queued (client_requests.h); no request is queued
//      whose tenant may have a stream.
//   2. Delivered token indices are 0, 1, 2 …, over all attempts; a gap or a repetition ends the
//      request with INTERNAL and is counted. So does a token that comes again after a break of its
//      stream, and differs.
//   3. Each request ends exactly once; nothing is delivered after.
//   4. The snapshot counts the requests there are, by state.
//   5. Every request has its deadline. It waits for an orchestrator, with a time limit of its own,
//      exactly if its token stream was lost, or if it is submitted and its cell is not ready. Its
//      next attempt has a time exactly if the one before was lost or moved, and stands in one of
//      two queues: the budget counts for one of them.
//   6. A request has a cell exactly if it was submitted there, and none in which it was before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/router/client_request.h"
#include "scheduler/router/client_requests.h"
#include "scheduler/router/request_cells.h"
#include "scheduler/router/retry_budget.h"
#include "scheduler/router/router_events.h"

namespace skein::scheduler {

// The head of a further attempt at `asked`, whose deadline_us is what is left of it, under this id:
// its prompt ends with the tokens `sent`, which count as the beginning of the answer. REQUIRES:
// fewer than max_tokens.
using HeadOfAttempt = HeadPtr (*)(const RequestHead& asked, RequestId id,
                                  std::span<const int32_t> sent);

struct RouterConfig {
  size_t cells = 1;  // orchestrators
  int64_t max_streams = 256;
  int64_t max_queued = 256;
  TimeUs request_deadline_us = 600 * kSecondUs;  // when the spec names none; the cap if it does
  TimeUs replan_wait_us = 5 * kSecondUs;         // for the orchestrator, when a stream failed early
  HeadOfAttempt head_of_attempt = nullptr;       // null: a request ends with its first attempt
  TimeUs resume_wait_us = 30 * kSecondUs;        // for a place, before what was lost is given up
  TimeUs orchestrator_wait_us = 30 * kSecondUs;  // for a stream to one
  TimeUs min_retry_after_us = kSecondUs;
  TimeUs max_retry_after_us = 60 * kSecondUs;
  SessionConfig session;
};

// RouterCore's parts: ClientRequests has the requests and the admission queue, RequestCells the
// cells and the waits for one; what a request's tokens and plans do to it, and its end, is here.
class RouterCore {
 public:
  static constexpr int kCellsTried = 3;  // of one request that is refused

  explicit RouterCore(const RouterConfig& config);
  RouterCore(const RouterCore&) = delete;  // its parts know one another
  RouterCore& operator=(const RouterCore&) = delete;

  // Total: any event in any state is safe.
  std::vector<RouterEffect> Handle(const RouterEvent& event, TimeUs now);
  // When the next RouterTick is due, kNever if none is.
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  // It holds at any time until the next event: `now` is what other cores need.
  const RouterSnapshot& Snapshot(TimeUs /*now*/ = 0) const { return snapshot_; }
  // The state of a request's record, by name; empty when there is none. For tests and people.
  std::string_view StateOf(RequestId id) const { return requests_.StateOf(id); }
  // Changes with each event that changes the snapshot: tokens do not.
  uint64_t snapshot_version() const { return snapshot_.version; }

 private:
  using Request = ClientRequest;
  using State = ClientRequest::State;
  using Known = ClientRequest::Known;
  using Progress = ClientRequest::Progress;

  void On(const Arrived& event);
  void On(const PlanUpdateReceived& event);
  void On(const TokenReceived& event);
  void On(const FinishedReceived& event);
  void On(const TokenStreamLost& event);
  void On(const StreamLeaving& event);
  void On(const ClientGone& event);
  void On(const StopMatched& event);
  // The rest is about the streams to the orchestrators; a tick is not.
  template <class Event>
  void On(const Event& event) {
    if constexpr (!std::is_same_v<Event, RouterTick>) cells_.On(event);
  }

  void Apply(Request& request, const Planned& planned);
  void Apply(Request& request, const Placed& placed);
  void Apply(Request& request, const Failed& failed);
  void Apply(Request& request, const Accepted& accepted);
  void Apply(Request& request, const PlanEnded& ended);
  void Accept(Request& request);
  static void NoteFailed(const FailedEngines& engines, Request* request);
  void AttachAhead(Request& request, const Planned& planned);
  void Place(Request& request, Epoch epoch, InstanceId decode);
  void TakeRefusal(Request& request, const absl::Status& status);
  void Lose(Request& request, FinishReason reason, absl::Status status);
  void LeaveUnreached(Request& request, const absl::Status& status);
  void LoseAttempt(Request& request, FinishReason reason, absl::Status status);
  void Resume(Request& request, FinishReason reason, absl::Status status);
  bool MayMove(const Request& request) const;
  void EndAttempt(Request& request, FinishReason reason, absl::Status status, bool free);
  void BeginRetries();
  TimeUs NextRetry() const;
  void BeginAttempt(Request& request);
  void TakeAgain(Request& request, const TokenReceived& event);
  void FailIndex(Request& request, const std::string& what);
  void CountGoals(const Request& request, bool complete);
  void Finish(Request& request, FinishReason reason, absl::Status status, int32_t stop_token = -1,
              std::string prompt_logprobs = {}, bool client_gone = false);  // erases it
  void RunTimers();

  const RouterConfig config_;
  TimeUs now_ = 0;
  std::vector<RouterEffect> effects_;  // of the Handle under way
  RouterSnapshot snapshot_;
  ClientRequests requests_;
  TimerQueue<RequestId> deadlines_;  // by first attempt
  TimerQueue<RequestId> attempts_;   // likewise: of those that are resuming, the next one's time
  TimerQueue<RequestId> retries_;    // the same of those that take from budget_
  RetryBudget budget_;
  bool budget_is_short_ = false;  // one of retries_ is due and waits for it
  RequestCells cells_;
};

}  // namespace skein::scheduler
