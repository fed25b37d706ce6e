#include "engine/sampling/weight_ranking.h"

#include <algorithm>

#include "engine/sampling/top_tokens.h"

namespace skein::engine {
namespace {

constexpr float kBinsOfAFactorE = 64.0f;
constexpr size_t kBins = 88 * 64;  // weights of less than exp(-87) are 0

}  // namespace

void WeightRanking::Rank(std::span<const float> logits, std::span<const float> weights,
                         std::span<const int32_t> ids, const WeightScale& scale) {
  logits_ = logits;
  weights_ = weights;
  ids_ = ids;
  bin_of_.resize(ids.size());
  sums_.assign(kBins, 0.0);
  const float bins_of_a_logit = kBinsOfAFactorE / scale.temperature;
  for (size_t i = 0; i < ids.size(); ++i) {
    const float place = (scale.max - logits[ids[i]]) * bins_of_a_logit;
    const auto bin = static_cast<uint16_t>(std::min(place, static_cast<float>(kBins - 1)));
    bin_of_[i] = bin;
    sums_[bin] += weights[ids[i]];
  }
}

WeightRanking::Place WeightRanking::Reach(double target) {
  size_t found = 0;
  double before = 0.0, with_found = 0.0;
  for (size_t bin = 0; bin < kBins && (with_found < target || with_found == 0.0); ++bin) {
    if (sums_[bin] == 0.0) continue;
    found = bin;
    before = with_found;
    with_found += sums_[bin];
  }
  SortBin(found);
  Place place = {sorted_.front(), before};
  for (const int32_t id : sorted_) {
    place = {id, place.reached + weights_[id]};
    if (place.reached >= target) break;
  }
  return place;
}

void WeightRanking::SortBin(size_t bin) {
  sorted_.clear();
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (bin_of_[i] == bin) sorted_.push_back(ids_[i]);
  }
  std::sort(sorted_.begin(), sorted_.end(), MoreLikely{logits_});
}

}  // namespace skein::engine
