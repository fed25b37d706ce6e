#include "services/router/generation/best_of.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace skein::services {
namespace {

double PerToken(const ChoiceScore& score) {
  if (score.tokens == 0) return -std::numeric_limits<double>::infinity();
  return score.logprob_sum / static_cast<double>(score.tokens);
}

}  // namespace

std::vector<size_t> BestOf(const std::vector<ChoiceScore>& scores, size_t n) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&scores](size_t a, size_t b) {
    return PerToken(scores[a]) > PerToken(scores[b]);
  });
  order.resize(n);
  return order;
}

}  // namespace skein::services
