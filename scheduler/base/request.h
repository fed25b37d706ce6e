// A request's parameters: all of them for the workers (RequestSpec), those that planning needs for
// the router and the orchestrator (RequestHead). Made once by the router, then immutable and
// shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

struct RequestSpec {
  RequestId id;
  std::string model;            // the model name that workers registered
  std::vector<int32_t> prompt;  // token ids, at least one
  // The last so many of `prompt` are tokens of the answer: an attempt before this one sampled them,
  // and its client has them. The output goes on behind them. Sampling counts them as output.
  int64_t sent_tokens = 0;
  int64_t max_tokens = 0;  // limit of output tokens, set by the router; 0: only score the prompt
  int64_t min_tokens = 0;  // stop tokens have no effect before this output index
  std::string sampling;    // serialised; opaque to the cores
  // Sampling one of these ends the request; the token is counted and reported, not emitted. Empty
  // with ignore_eos.
  std::vector<int32_t> stop_token_ids;
  bool want_prompt_logprobs = false;
  int32_t priority = 0;    // a larger one is served before a smaller one
  TimeUs deadline_us = 0;  // budget, starting at arrival at each process; 0: the process's default
  std::vector<std::string> names;  // ids that the client knows the request by; for people
  // The first choice of the answer of which this is a further one: the same prompt, to be shared.
  std::optional<RequestId> prompt_of = std::nullopt;
  std::string tenant;         // whose request it is; empty: nobody's
  int64_t tenant_weight = 1;  // its share beside other tenants'; at least 1
  TimeUs ttft_goal_us = 0;    // what the client wants at best; 0: it does not say
  TimeUs tpot_goal_us = 0;
  std::string traceparent;  // W3C Trace Context: the router's span; empty: not traced
};

using SpecPtr = std::shared_ptr<const RequestSpec>;

// What router and orchestrator know of a request: what they decide by, and the serialised spec,
// which they pass on. The fields are those of RequestSpec.
struct RequestHead {
  RequestId id;
  std::string model;
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;
  bool want_prompt_logprobs = false;
  int32_t priority = 0;
  TimeUs deadline_us = 0;
  std::vector<std::string> names;
  std::optional<RequestId> prompt_of = std::nullopt;
  std::string tenant;         // whose request it is; empty: nobody's
  int64_t tenant_weight = 1;  // its share beside other tenants'; at least 1
  TimeUs ttft_goal_us = 0;    // what the client wants at best; 0: it does not say
  TimeUs tpot_goal_us = 0;
  std::string traceparent;  // W3C Trace Context: the router's span; empty: not traced
  std::shared_ptr<const std::string> encoded;  // the spec; opaque to the cores, shared by all uses
};

using HeadPtr = std::shared_ptr<const RequestHead>;

// The two parts of `prompt`: what the client asked with, and what it has of the answer.
inline std::span<const int32_t> AskedPrompt(const RequestSpec& spec) {
  return std::span(spec.prompt).first(spec.prompt.size() - static_cast<size_t>(spec.sent_tokens));
}
inline std::span<const int32_t> SentOutput(const RequestSpec& spec) {
  return std::span(spec.prompt).last(static_cast<size_t>(spec.sent_tokens));
}

inline int64_t PromptTokens(const RequestSpec& spec) {
  return static_cast<int64_t>(spec.prompt.size());
}
inline int64_t PromptTokens(const RequestHead& head) { return head.prompt_tokens; }

// The tokens for which a decode instance takes blocks before the KV comes: those of the prompt, and
// the first of the output, if another one follows it.
template <class Spec>  // RequestSpec or RequestHead
int64_t OpeningTokens(const Spec& spec) {
  return PromptTokens(spec) + (spec.max_tokens > 1 ? 1 : 0);
}

enum class FinishReason { kStop, kLength, kCancelled, kError };

inline std::string_view ToString(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

}  // namespace skein::scheduler
