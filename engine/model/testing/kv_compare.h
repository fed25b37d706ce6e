// Compares the KV of a prompt, block by block, with what another run computed.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/model/testing/ranks/ring_ranks.h"

namespace skein::engine {

// The largest difference of any element of the `tokens` tokens; NaN when either side has one.
// actual[b] is block b's place among `engines`, expected[b] its place in `plain`.
double LargestKvDifference(const std::vector<Engine*>& engines,
                           const std::vector<BlockPlace>& actual, const Engine& plain,
                           const std::vector<BlockPlace>& expected, int64_t tokens);

}  // namespace skein::engine
