#include "scheduler/simulator/prompt_history.h"

#include <algorithm>
#include <cmath>

namespace skein::scheduler {

void PromptHistory::OnArrival(int64_t prompt_tokens, TimeUs now) {
  if (prompt_tokens <= 0) return;
  if (window_us_ == kNever) window_us_ = now;
  if (now - window_us_ >= kWindowUs) {
    CloseWindow();
    window_us_ = now - (now - window_us_) % kWindowUs;
  }
  ++in_window_;
  ++prompts_;
  if (lengths_.size() < kLengthsMax) {
    lengths_.push_back(prompt_tokens);
    return;
  }
  const uint64_t at = random_.Below(static_cast<uint64_t>(prompts_));
  if (at < kLengthsMax) lengths_[at] = prompt_tokens;
}

void PromptHistory::CloseWindow() {
  if (in_window_ == 0) return;
  const auto bin =
      static_cast<size_t>(std::lround(kBinsPerOctave * std::log2(static_cast<double>(in_window_))));
  seen_[std::min(bin, kBins - 1)] = true;
  in_window_ = 0;
}

void PromptHistory::Clear() {
  prompts_ = 0;
  lengths_.clear();
  window_us_ = kNever;
  in_window_ = 0;
  seen_ = {};
}

std::vector<double> PromptHistory::Loads() const {
  constexpr double kWindowS = static_cast<double>(kWindowUs) / kSecondUs;
  std::vector<double> loads;
  for (size_t bin = 0; bin < kBins; ++bin) {
    if (!seen_[bin]) continue;
    loads.push_back(std::exp2(static_cast<double>(bin) / kBinsPerOctave) / kWindowS);
  }
  return loads;
}

}  // namespace skein::scheduler
