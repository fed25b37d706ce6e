// What a closed loop of clients did within a part of its run, and the prompts that they send.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/gateway/load.h"

namespace skein::bench {

// Microseconds from the start of the run: [begin, end).
struct Window {
  int64_t begin_us = 0;
  int64_t end_us = 0;
};

struct Measured {
  double tokens = 0;             // output tokens that came in the window
  std::vector<int64_t> ttft_us;  // of answers whose first token came in it
  std::vector<int64_t> tpot_us;  // of answers that ended in it
};

// Each answer has `output_tokens`, 1 or more. The first token's time is known; the others are taken
// as evenly spread from there to the end of the answer.
Measured Within(const Window& window, const Samples& samples, int output_tokens);

// `tokens` random ids from 3 to `vocab` - 9: the last few are control tokens of some models, the
// first few of others. The same for the same seed and index, whoever asks and whenever.
std::vector<int> PromptOf(uint32_t seed, uint32_t index, int tokens, int vocab);

}  // namespace skein::bench
