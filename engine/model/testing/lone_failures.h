// The suite for sequences that fail (engine.h): every Engine lets them fail alone. Besides
// sequences that are refused, that have no token left to sample or that give NaN, the others get
// the results that they would get without them.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/engine.h"

namespace skein::engine {

struct LoneFailureOptions {
  // Fills a block of every layer with NaN. Null: the engine's logits never are NaN.
  std::function<void(int32_t block)> spoil_block = nullptr;
  // Whether a sequence's numbers are the same bits in whatever batch it runs; else its tokens are.
  bool exact = true;
};

// Fails the current test where a promise is broken. At least 14 blocks of at least 4 tokens, and a
// vocabulary of at least 50.
void ExpectFailuresStayAlone(Engine& engine, const LoneFailureOptions& options = {});

}  // namespace skein::engine
