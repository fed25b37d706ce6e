#include "engine/sampling/top_tokens.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "engine/sampling/softmax.h"

namespace skein::engine {
namespace {

// The best `count` tokens so far. The heap's front is the least likely of them.
class Best {
 public:
  Best(std::span<const float> logits, size_t count, std::vector<int32_t>* tokens)
      : more_likely_{logits}, count_(count), tokens_(*tokens) {
    tokens_.clear();
  }

  // REQUIRES: ids grow.
  void Consider(int32_t id) {
    if (tokens_.size() == count_) {
      const std::span<const float> logits = more_likely_.logits;
      if (!(logits[id] > logits[tokens_.front()])) return;  // an equal one has a larger id
      std::pop_heap(tokens_.begin(), tokens_.end(), more_likely_);
      tokens_.pop_back();
    }
    tokens_.push_back(id);
    std::push_heap(tokens_.begin(), tokens_.end(), more_likely_);
  }

  void Sort() { std::sort_heap(tokens_.begin(), tokens_.end(), more_likely_); }

 private:
  const MoreLikely more_likely_;
  const size_t count_;
  std::vector<int32_t>& tokens_;
};

}  // namespace

// As many stretches as tokens are kept have a maximum of `least` or more, so all that is kept is at
// least that, and stretches below it are not looked at.
int64_t TopTokens::Find(std::span<const float> logits, std::span<const float> maxima, size_t count,
                        std::vector<int32_t>* tokens) {
  float least = -std::numeric_limits<float>::infinity();
  if (count <= maxima.size()) {
    largest_.assign(maxima.begin(), maxima.end());
    const auto last = largest_.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(largest_.begin(), last, largest_.end(), std::greater<>());
    least = *last;
  }
  Best best(logits, count, tokens);
  int64_t compared = 0;
  for (size_t s = 0; s < maxima.size(); ++s) {
    if (maxima[s] < least) continue;
    const size_t begin = s * kStretchLogits, size = StretchOf(logits, s).size();
    for (size_t i = begin; i < begin + size; ++i) best.Consider(static_cast<int32_t>(i));
    compared += static_cast<int64_t>(size);
  }
  best.Sort();
  return compared;
}

}  // namespace skein::engine
