// Real text for parity tests: the shipped model's held-out questions and answers
// (eval_sample.json), scored and answered in batches of prefill slices and single tokens. Tests
// need
// //deploy/models/fledgling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/model/model_engine.h"

namespace skein::engine {

inline constexpr char kParityModelDir[] = "deploy/models/fledgling";
inline constexpr size_t kParityTextTokens = 2173;

// A question as the chat template puts it, and the answer, which the model gives with room in its
// logits: rounding does not change it.
struct EvalItem {
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;
};
std::vector<EvalItem> EvalItems();

// The first `count` ids of all questions and answers end to end.
std::vector<int32_t> EvalText(size_t count);

// Room for what is below.
ModelEngineOptions ParityPool();

// Teacher-forced NLL in nats a token of 2,169 tokens of `text` (kParityTextTokens): four sequences
// of lengths that nothing divides, one whole, two in slices, one token by token, in the same steps.
// The first number is of all tokens, then each sequence's own.
std::vector<double> ParityScores(Engine& engine, const std::vector<int32_t>& text);

// The largest relative difference of two.
double LargestDifference(const std::vector<double>& actual, const std::vector<double>& expected);

// The greedy answers to three of the questions, asked together, end to end; and what they should
// be.
std::vector<int32_t> ParityGreedy(Engine& engine);
std::vector<int32_t> ParityAnswers();

}  // namespace skein::engine
