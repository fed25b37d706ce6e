// The messages of a token stream, one to one with proto/ (services/codec converts). All requests of
// one router at one decode-worker share the stream. Each end is a component:
// scheduler/worker/token_streams.h and scheduler/router/token_stream_client.h.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"

namespace skein::scheduler {

// One StreamTokens call. Each end numbers its own calls from 1; never reused within a process.
struct TokenStreamId {
  uint64_t value = 0;
  auto operator<=>(const TokenStreamId&) const = default;
};

// ---- router -> decode ----

struct AttachTokens {
  RequestId id;
  Epoch epoch;
  int64_t credit = 0;  // tokens that may be sent
  std::string traceparent;
  // The request was announced there; whether it has got blocks is not known. Held until it has.
  bool ahead = false;
  // How many tokens the router has. Set: it attaches again when the stream breaks. Above 0, the
  // last of these is sent once more, and then those that follow.
  std::optional<int64_t> from_index = {};
  Incarnation decode = {};    // the process that is meant; zero: any
  TokenStreamId stream = {};  // as its router numbers it
};
struct CreditTokens {
  RequestId id;
  Epoch epoch;
  int64_t more = 0;
  int64_t received = 0;  // tokens that the router has
};
struct DetachTokens {
  RequestId id;
  Epoch epoch;
};

// Executed in this order.
struct TokenStreamRequest {
  std::vector<AttachTokens> attach;
  std::vector<CreditTokens> credit;
  std::vector<DetachTokens> detach;
  bool empty() const { return attach.empty() && credit.empty() && detach.empty(); }
};

// ---- decode -> router ----

struct FinishedTokens {
  FinishReason reason = FinishReason::kError;
  absl::Status status;         // OK for stop and length
  int64_t output_tokens = 0;   // sampled tokens, including the stop token
  int32_t stop_token = -1;     // the sampled stop token when reason is kStop
  bool engine_failed = false;  // the instance's engine failed in a step with the request
};

// Consecutive tokens of one request, and its end if it has ended.
struct SequenceTokens {
  RequestId id;
  Epoch epoch;
  int64_t first_index = 0;
  std::vector<int32_t> tokens;
  std::vector<std::string> payloads;       // one per token, or none if all are empty
  std::string prompt_logprobs;             // with token 0, or with the end if there are no tokens
  std::optional<PrefillTimes> times = {};  // as prompt_logprobs
  std::optional<FinishedTokens> finished = {};
  bool leaving = false;  // the instance drains: the router should go on with the request elsewhere
};

struct TokenBatch {
  std::vector<SequenceTokens> sequences;
};

}  // namespace skein::scheduler
