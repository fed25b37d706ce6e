// Which of several choices are the best: those with the highest logprob per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skein::services {

// What a choice's tokens have added up to.
struct ChoiceScore {
  double logprob_sum = 0;
  int64_t tokens = 0;
};

// The indexes of the n best of `scores`, the best first. Equal ones stay in order; a choice without
// tokens has no score and comes last. REQUIRES: n <= scores.size().
std::vector<size_t> BestOf(const std::vector<ChoiceScore>& scores, size_t n);

}  // namespace skein::services
