// Real text for parity tests: the shipped model's held-out questions as token ids, and how they are
// scored, in batches of prefill chunks and single tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace skein::engine {

// The first `count` ids of the text of `model_dir`/eval_sample.json.
std::vector<int32_t> EvalText(const std::string& model_dir, size_t count);

// Teacher-forced NLL in nats a token of 2,169 tokens of `text` (≥ 2,173 ids): four sequences of
// lengths that nothing divides, one whole, two in chunks, one token by token, in the same steps.
// Fills `by_sequence` with each one's own.
double ParityNll(Engine& engine, const std::vector<int32_t>& text,
                 std::vector<double>* by_sequence);

}  // namespace skein::engine
