// Runs sequences to their end on an engine, for tests: hands out blocks, cuts prompts in slices.
// Fails the current test (ADD_FAILURE) when a step fails.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace skein::engine {

struct GreedyRun {
  std::vector<int32_t> prompt;
  int tokens_wanted = 1;
  int slice_tokens = 0;  // 0: the prompt in one step
  int first_step = 0;    // joins the batch at this step
  std::vector<int32_t> output = {};
};

// Every step runs one slice or one token of each sequence that is neither finished nor late. Blocks
// are dealt in an order that interleaves the sequences.
void RunTogether(Engine& engine, const std::vector<GreedyRun*>& runs);

// Raw logits after the whole prompt.
std::vector<float> LogitsAfter(Engine& engine, const std::vector<int32_t>& prompt);

// Teacher-forced scoring of one text.
struct NllRun {
  std::vector<int32_t> ids;
  int slice_tokens = 0;  // 0: whole
  int first_step = 0;
  double nll = 0.0;  // out: mean over ids[1 …] given what is before, nats
};

// Scores all texts in the same steps, one slice of each a step. Blocks are dealt from the pool's
// end downwards, so that tables are neither ascending nor contiguous.
void ScoreTogether(Engine& engine, const std::vector<NllRun*>& runs);

// Of one text alone.
double MeanNll(Engine& engine, const std::vector<int32_t>& ids, int slice_tokens);

}  // namespace skein::engine
