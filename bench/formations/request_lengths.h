// Lengths of prompts and outputs with the quantiles of published requests. Prompts and outputs are
// chosen independently of each other.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "scheduler/simulator/formations/phased_load.h"

namespace skein::bench {

struct LengthQuantiles {
  std::array<int64_t, 11> prompt;  // the minimum, nine deciles, the maximum; linear between them
  std::array<int64_t, 11> output;
};

// HumanEval's 164 problems, prompt and reference solution: four characters are one token.
const LengthQuantiles& HumanEvalLengths();
// Mooncake's trace of conversations (12,031 requests): the long contexts, in place of an agent's.
const LengthQuantiles& MooncakeLengths();
// Azure's trace of conversations (19,366 requests, 2023).
const LengthQuantiles& AzureLengths();

// Half of the requests, chosen by `seed`, get lengths of `a`, the others of `b`.
void MixLengths(const LengthQuantiles& a, const LengthQuantiles& b, uint64_t seed,
                std::vector<scheduler::GroupRequest>* requests);

}  // namespace skein::bench
