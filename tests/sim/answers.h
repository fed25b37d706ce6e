// What the simulated engines compute, and so what each request's answer must be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/emulated/emulated_engine.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"

namespace skein::sim {

inline constexpr int kVocab = 50;
inline constexpr char kNanFrom[] = "nan from ";  // a request's name; an output index follows

// Of blocks of so many heads. What an engine answers depends on their number.
engine::EmulatedOptions EngineOptions(scheduler::Role role, int kv_heads);

// The whole answer of a request, from its tokens and sampling parameters alone.
struct Expected {
  std::vector<int32_t> tokens;        // emitted, without a stop token
  std::vector<std::string> payloads;  // of each of them, with its logprobs (PayloadOf)
  int32_t stop_token = -1;
  std::string prompt_logprobs;  // empty unless they are wanted
};
Expected ExpectedAnswer(const scheduler::RequestSpec& spec, int kv_heads);
// The output index from which on the logits of the request's sequence are NaN (never: INT64_MAX).
// The engines of the simulation read it from the request's names.
int64_t NanFrom(const scheduler::RequestSpec& spec);

}  // namespace skein::sim
