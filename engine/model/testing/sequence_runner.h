// Runs sequences to their end on an engine, for tests: hands out blocks, cuts prompts in chunks.
// Fails the current test (ADD_FAILURE) when a step fails.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace skein::engine {

struct GreedyRun {
  std::vector<int32_t> prompt;
  int tokens_wanted = 1;
  int chunk_tokens = 0;  // 0: the prompt in one step
  int first_step = 0;    // joins the batch at this step
  std::vector<int32_t> output = {};
};

// Every step runs one chunk or one token of each sequence that is neither finished nor late. Blocks
// are dealt in an order that interleaves the sequences.
void RunTogether(Engine& engine, const std::vector<GreedyRun*>& runs);

// Raw logits after the whole prompt.
std::vector<float> LogitsAfter(Engine& engine, const std::vector<int32_t>& prompt);

// Negative log-likelihood of ids[1 …] given what is before, mean in nats, teacher-forced in chunks
// (0: whole). Blocks are dealt from the pool's end, downwards, when `reversed`.
double MeanNll(Engine& engine, const std::vector<int32_t>& ids, int chunk_tokens,
               bool reversed = false);

}  // namespace skein::engine
