// The events by which DecodeCore's shell reports routers that attach and detach, and the effects by
// which DecodeCore sends them tokens. DecodeSequences makes the effects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"

namespace skein::scheduler {

// ---- events ----

// The router attached to a request. It stays attached until EndStream{call} or DetachCalled{call}.
struct AttachCalled {
  CallId call;
  RequestId id;
  Epoch epoch;
  bool ahead = false;  // the request may have no blocks here yet, or never get any
};
struct DetachCalled {  // the router went away or cancelled
  CallId call;
};

// ---- effects ----

struct EmitToken {  // a token on the stream `call`, in a TokenBatch
  CallId call;
  RequestId id;
  Epoch epoch;
  int64_t index = 0;
  int32_t token = 0;
  std::string payload;
  std::string prompt_logprobs;             // with index 0 only
  std::optional<PrefillTimes> times = {};  // with index 0 only
};
struct EndStream {  // TokenBatch.Finished for `call`; nothing follows
  CallId call;
  RequestId id;
  Epoch epoch;
  FinishReason reason = FinishReason::kError;
  absl::Status status;  // OK for stop and length
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;    // sampled, the stop token included
  int32_t stop_token = -1;      // the sampled stop token when reason is kStop
  std::string prompt_logprobs;  // when max_tokens is 0: there is no token 0 to carry them
  std::optional<PrefillTimes> times = {};  // likewise
  bool engine_failed = false;              // in a step with the request
};

// The instance drains: the router of the stream `call` is asked to go on with the request
// elsewhere. The stream goes on until it detaches.
struct AskToMove {
  CallId call;
};

// What became of a sequence whose request is traced (RequestSpec::traceparent). For people.
struct SequenceNote {
  enum class What {
    kReady,         // its KV is whole
    kPreempted,     // it gave its blocks back
    kResumed,       // it has blocks again; its `tokens` so far are computed anew
    kEnteredGroup,  // the bound group runs it from here on
    kLeftGroup,     // that is over; it is preempted again
  };
  RequestId id;
  Epoch epoch;
  What what = What::kPreempted;
  int64_t tokens = 0;  // of prompt and output, so far
};

using TokenEffect = std::variant<EmitToken, EndStream, SequenceNote>;

}  // namespace skein::scheduler
