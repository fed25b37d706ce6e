// What a WorkerCore and its engine thread say to each other. At most one step is in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/kv/block_pool.h"

namespace skein::scheduler {

// One sequence of a step: tokens [position, position + count) of prompt ++ output.
struct StepSequence {
  RequestId id;
  Epoch epoch;
  SpecPtr spec;
  int64_t position = 0;
  int64_t count = 0;
  BlockTable blocks;  // covers at least position + count tokens
  bool sample = false;
  int64_t token_index = 0;  // output index of the drawn token, when `sample`
  // Output tokens so far; read-only for the shell, and unchanged until StepDone is handled.
  std::shared_ptr<const std::vector<int32_t>> output;

  int32_t TokenAt(int64_t place) const {
    const auto prompt_tokens = static_cast<int64_t>(spec->prompt.size());
    return place < prompt_tokens ? spec->prompt[place] : (*output)[place - prompt_tokens];
  }
};

// Effect: run this batch on the engine, then answer StepDone with the same step number.
struct RunStep {
  uint64_t step = 0;
  std::vector<StepSequence> sequences;
};

struct StepResult {
  int32_t token = 0;            // when `sample`
  std::string payload;          // the sampled token with its logprobs, serialised
  std::string prompt_logprobs;  // of this chunk, serialised so that chunks can be concatenated
};

// Event: results[i] belongs to sequences[i]; empty on error. INVALID_ARGUMENT: nothing was run, the
// batch's requests end with it. Any other error: the engine is unusable; all requests end.
struct StepDone {
  uint64_t step = 0;
  absl::Status status;
  std::vector<StepResult> results;
};

}  // namespace skein::scheduler
