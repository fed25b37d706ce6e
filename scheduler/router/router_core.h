// RouterCore: the life of every request as its client sees it. One thread owns it.
//
// Life: queued (admission) -> submitted -> placed (token stream open) -> ended. A request ends
// exactly once, with Reject (nothing was done) or End. As long as its client has nothing of it, the
// orchestrator may plan it anew under a later epoch: from placed it goes back to submitted. A token
// stream that fails before its first token waits for that word.
//
// Invariants, by number (CheckInvariants names them):
//   1. running <= max_streams, queued <= max_queued; nothing is queued while a stream is free.
//   2. Delivered token indices are 0, 1, 2 …; a gap or a repetition ends the request with INTERNAL
//      and is counted.
//   3. Each request ends exactly once; nothing is delivered after.
//   4. The snapshot counts the requests there are, by state.
#pragma once

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

namespace skein::scheduler {

// ---- events ----

struct Arrived {  // a client's request; the shell numbers them, ids are never used twice
  SpecPtr spec;
};
struct PlanUpdateReceived {
  RequestId id;
  PlanUpdate update;
};
struct SubmitStreamEnded {  // by itself, not by CloseSubmit; OK = the orchestrator ended it
  RequestId id;
  absl::Status status;
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
struct GenerateStreamEnded {  // by itself; after FinishedReceived it is ignored
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
    std::variant<Arrived, PlanUpdateReceived, SubmitStreamEnded, TokenReceived, FinishedReceived,
                 GenerateStreamEnded, ClientGone, StopMatched, RouterTick>;

// ---- effects ----

struct Reject {  // RESOURCE_EXHAUSTED; before any work was done
  RequestId id;
  absl::Status status;
  TimeUs retry_after_us = 0;
};
struct OpenSubmit {  // to the orchestrator
  SpecPtr spec;
  TimeUs timeout_us = 0;
};
struct CloseSubmit {
  RequestId id;
};
struct OpenGenerate {  // to the decode instance at `endpoint`
  RequestId id;
  Epoch epoch;
  InstanceId decode;
  std::string endpoint;
};
struct CloseGenerate {
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
  int64_t output_tokens = 0;    // drawn, a stop token included
  int32_t stop_token = -1;      // the drawn stop token, if that was the reason
  std::string prompt_logprobs;  // when max_tokens is 0
  bool begun = false;           // it was placed: instances may have worked for it
  RequestTimes times;
};

using RouterEffect =
    std::variant<Reject, OpenSubmit, CloseSubmit, OpenGenerate, CloseGenerate, DeliverToken, End>;

struct RouterConfig {
  int64_t max_streams = 256;
  int64_t max_queued = 256;
  TimeUs request_deadline_us = 600 * kSecondUs;  // when the spec names none; the cap if it does
  TimeUs replan_wait_us = 5 * kSecondUs;         // for the orchestrator, when a stream failed early
  TimeUs min_retry_after_us = kSecondUs;
  TimeUs max_retry_after_us = 60 * kSecondUs;
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
  uint64_t index_errors = 0;  // gaps and repetitions
  struct OfModel {
    int64_t queued = 0, submitted = 0, streaming = 0;
  };
  std::map<std::string, OfModel> models;  // of which there was a request
};

class RouterCore {
 public:
  explicit RouterCore(const RouterConfig& config);

  // Total: any event in any state is safe.
  std::vector<RouterEffect> Handle(const RouterEvent& event, TimeUs now);
  // When the next RouterTick is due, kNever if none is.
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  const RouterSnapshot& Snapshot() const { return snapshot_; }
  // The state of a request's record, by name; empty when there is none. For tests and people.
  std::string_view StateOf(RequestId id) const;
  // Changes with each event that changes the snapshot: tokens do not.
  uint64_t snapshot_version() const { return snapshot_version_; }

 private:
  enum class State { kQueued, kSubmitted, kPlaced };

  struct Request {
    SpecPtr spec;
    State state = State::kQueued;
    bool submit_open = false;
    bool stream_open = true;  // the token stream has not ended by itself (counts once placed)
    Epoch epoch;
    bool begun = false;  // it has been placed, under any epoch
    int64_t delivered = 0;
    TimeUs arrived_us = 0;
    RequestTimes times;
    TimeUs deadline_us = kNever;
    // The token stream failed before its first token: what the request ends with if it is not
    // planned anew by then.
    FinishReason lost_reason = FinishReason::kError;
    absl::Status lost_status;
    TimeUs lost_until_us = kNever;
  };

  void On(const Arrived& event);
  void On(const PlanUpdateReceived& event);
  void On(const SubmitStreamEnded& event);
  void On(const TokenReceived& event);
  void On(const FinishedReceived& event);
  void On(const GenerateStreamEnded& event);
  void On(const ClientGone& event);
  void On(const StopMatched& event);
  void On(const RouterTick& event) {}

  void Apply(Request& request, const Planned& planned);
  void Apply(Request& request, const Placed& placed);
  void Apply(Request& request, const Failed& failed);
  void Apply(Request& request, const Accepted& accepted) {}
  void Lose(Request& request, FinishReason reason, absl::Status status);
  void Keep(Request& request);  // it waits no more
  void SetState(Request& request, State state);
  void Count(const Request& request, int64_t change);  // in its state
  Request* Find(RequestId id);
  Request* FindStream(RequestId id, Epoch epoch);  // placed under this epoch
  void FailIndex(Request& request, const std::string& what);
  void Finish(Request& request, FinishReason reason, absl::Status status, int32_t stop_token = -1,
              std::string prompt_logprobs = {});  // erases it
  void ExpireDeadlines();
  void AdmitQueued();
  TimeUs RetryAfter() const;

  RouterConfig config_;
  TimeUs now_ = 0;
  std::vector<RouterEffect> effects_;  // of the Handle under way
  std::map<RequestId, Request> requests_;
  int64_t running_ = 0;          // requests that are not queued
  std::deque<RequestId> queue_;  // ids of queued requests, by arrival
  std::set<std::pair<TimeUs, RequestId>> deadlines_;
  std::set<std::pair<TimeUs, RequestId>> lost_;  // by lost_until_us
  std::deque<TimeUs> recent_ends_;  // of requests that had been submitted, for RetryAfter
  RouterSnapshot snapshot_;
  uint64_t snapshot_version_ = 0;
};

}  // namespace skein::scheduler
