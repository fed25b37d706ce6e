#include "bench/serving/measured.h"

#include <algorithm>
#include <random>

namespace skein::bench {
namespace {

bool Holds(const Window& window, int64_t time_us) {
  return window.begin_us <= time_us && time_us < window.end_us;
}

// The share of [first_us, end_us] that is in the window.
double ShareIn(const Window& window, int64_t first_us, int64_t end_us) {
  const int64_t length = std::max<int64_t>(1, end_us - first_us);
  const int64_t begin = std::max(window.begin_us, first_us);
  const int64_t end = std::min(window.end_us, first_us + length);
  return static_cast<double>(std::max<int64_t>(0, end - begin)) / static_cast<double>(length);
}

}  // namespace

Measured Within(const Window& window, const Samples& samples, int output_tokens) {
  Measured measured;
  for (const StreamTimes& stream : samples.streams) {
    const int64_t first_us = stream.start_us + stream.ttft_us;
    const int64_t end_us = stream.start_us + stream.total_us;
    measured.tokens += (output_tokens - 1) * ShareIn(window, first_us, end_us);
    if (Holds(window, first_us)) {
      measured.tokens += 1;
      measured.ttft_us.push_back(stream.ttft_us);
    }
    if (Holds(window, end_us)) {
      measured.tpot_us.push_back((end_us - first_us) / std::max(1, output_tokens - 1));
    }
  }
  return measured;
}

std::vector<int> PromptOf(uint32_t seed, uint32_t index, int tokens, int vocab) {
  std::seed_seq both{seed, index};
  std::mt19937 random(both);
  std::uniform_int_distribution<int> id(3, vocab - 9);
  std::vector<int> prompt(static_cast<size_t>(tokens));
  for (int& token : prompt) token = id(random);
  return prompt;
}

}  // namespace skein::bench
