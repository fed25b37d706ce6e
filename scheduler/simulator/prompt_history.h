// PromptHistory: what the improvement rates of a model are tuned from (Tetris, section 5.1): a
// sample of the lengths of its prompts, and the loads at which they arrived. Bounded, whatever
// arrives. Deterministic; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/base/time.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {

class PromptHistory {
 public:
  static constexpr size_t kLengthsMax = 8192;
  // As the planner measures the load (improvement_rate.h).
  static constexpr TimeUs kWindowUs = 30 * kSecondUs;

  explicit PromptHistory(uint64_t seed = 1) : random_(seed) {}

  // `now` never decreases. A prompt without tokens is not counted.
  void OnArrival(int64_t prompt_tokens, TimeUs now);
  // Begins anew; the window in progress is counted no more.
  void Clear();

  int64_t prompts() const { return prompts_; }
  // Of all prompts, or of kLengthsMax of them: each prompt is in the sample with the same
  // probability (reservoir sampling).
  const std::vector<int64_t>& lengths() const { return lengths_; }
  // The requests per second of complete windows with at least one arrival, ascending and each load
  // once, rounded to a fourth of an octave.
  std::vector<double> Loads() const;

 private:
  static constexpr int kBinsPerOctave = 4;
  static constexpr size_t kBins = 32 * kBinsPerOctave;  // up to 2^32 arrivals in a window

  void CloseWindow();

  Random random_;
  int64_t prompts_ = 0;
  std::vector<int64_t> lengths_;
  TimeUs window_us_ = kNever;  // begin of the one in progress
  int64_t in_window_ = 0;
  std::array<bool, kBins> seen_ = {};  // loads
};

}  // namespace skein::scheduler
