// Steps of every kind in one run of one engine at each rank: alone, in a bound group (its mode
// changes from step to step) and in a ring, in turns, through StepEngine. All score the same text.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/stepping/step_engine.h"

namespace skein::engine {

// Logprobs of text[1], text[2], …
struct MixedScores {
  std::vector<std::vector<float>> alone;  // by rank
  std::vector<std::vector<float>> group;  // by rank; all the same bits
  std::vector<float> ring;                // of the rank that ran each token
};

// `engines` by rank, two or more, which take steps of a group of them all; their pools hold the
// text three times. The first status that is not OK, of a step or of a sequence.
absl::StatusOr<MixedScores> ScoreMixed(const std::vector<StepEngine*>& engines,
                                       const std::vector<int32_t>& text, int64_t slice_tokens);

}  // namespace skein::engine
