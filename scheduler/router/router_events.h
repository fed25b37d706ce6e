// The events that a RouterCore handles, and the effects that its shell carries out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/prefill_shape.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/router/orchestrator_session.h"

namespace skein::scheduler {

// Ids. A client's request keeps the id with which it arrived: events of the client, and effects for
// it, have that one. Where orchestrators and instances are concerned, the id is that of the present
// attempt at the request (RequestId::Attempt).

// ---- events ----

struct Arrived {  // a client's request; the shell numbers them, ids are never used twice
  HeadPtr spec;
  PrefillShape shape = {};  // in which its prompt is computed, whatever the policy
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
  bool again = false;                      // it came before, on a stream that broke
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
  bool engine_failed = false;              // as FinishedTokens has it
};
struct TokenStreamLost {  // by itself; after FinishedReceived it is ignored
  RequestId id;
  Epoch epoch;
  absl::Status status;
  bool unreached = false;  // its instance was not asked for it: the router does not reach that
};
// Its decode instance drains, and asks that the request go on elsewhere. Its stream goes on.
struct StreamLeaving {
  RequestId id;
  Epoch epoch;
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
                 StreamLeaving, ClientGone, StopMatched, Join, Leave, ReportSoon, Welcomed,
                 RouterReportTaken, RouterGoodbyeTaken, LinkBroken, RouterTick>;

// ---- effects ----

struct Reject {  // RESOURCE_EXHAUSTED; before any work was done
  RequestId id;
  absl::Status status;
  TimeUs retry_after_us = 0;
};
struct SendSubmit {  // on the stream to the orchestrator of `cell`
  HeadPtr spec;      // of the present attempt
  PrefillShape shape = {};
  bool accepted = false;              // by an orchestrator before
  FailedEngines failed_engines = {};  // that the router was told of
  uint32_t moves = 0;                 // to other cells, so far
  size_t cell = 0;
};
struct RequestAccepted {  // for the client, once at most: it will not be refused any more
  RequestId id;
};
struct OpenTokens {  // to the decode instance at `endpoint`
  RequestId id;      // of the attempt
  Epoch epoch;
  Incarnation decode;  // its process
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

}  // namespace skein::scheduler
