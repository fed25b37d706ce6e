// What a request asks for. Made once by the router, then immutable and shared by everyone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

struct RequestSpec {
  RequestId id;
  std::string model;            // the name under which workers registered
  std::vector<int32_t> prompt;  // token ids, at least one
  int64_t max_tokens = 0;       // output tokens; resolved by the router; 0 only scores the prompt
  int64_t min_tokens = 0;       // a stop token at an output index below this does not stop
  std::string sampling;         // serialised; no core looks inside
  // Sampling one of these ends the request; it is counted and reported, not emitted. Empty with
  // ignore_eos.
  std::vector<int32_t> stop_token_ids;
  bool want_prompt_logprobs = false;
  int32_t priority = 0;
  TimeUs deadline_us = 0;  // budget from the arrival at whoever reads it; 0 = that one's default
  std::vector<std::string> names;  // the request's, as its client sees it; for people
};

using SpecPtr = std::shared_ptr<const RequestSpec>;

inline int64_t PromptTokens(const RequestSpec& spec) {
  return static_cast<int64_t>(spec.prompt.size());
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
