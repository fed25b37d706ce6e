#include "engine/sampling/weight_ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/sampling/philox.h"
#include "engine/sampling/softmax.h"
#include "engine/sampling/top_tokens.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

// Many tokens of several spreads and temperatures, with equal logits among them.
class WeightRankingTest : public testing::Test {
 protected:
  void Fill(size_t size, double spread, const WeightScale& scale) {
    logits_.resize(size);
    weights_.resize(size);
    ids_.clear();
    for (size_t i = 0; i < size; ++i) {
      const double u = UniformSample(9, i / 3);  // three in a row are equal
      logits_[i] = scale.max - static_cast<float>(spread * u);
      weights_[i] = ExpWeight(logits_[i], scale.max, scale.temperature);
      if (weights_[i] > 0.0f && i % 13 != 0) ids_.push_back(static_cast<int32_t>(i));
    }
    ranking_.Rank(logits_, weights_, ids_, scale);
    sorted_ = ids_;
    std::sort(sorted_.begin(), sorted_.end(), MoreLikely{logits_});
  }

  std::vector<float> logits_, weights_;
  std::vector<int32_t> ids_, sorted_;
  WeightRanking ranking_;
};

TEST_F(WeightRankingTest, FindsWhatSortingWould) {
  for (const double spread : {0.0, 0.001, 1.0, 30.0, 500.0}) {
    for (const float temperature : {1e-3f, 0.7f, 1.0f, 1e30f}) {
      SCOPED_TRACE(testing::Message() << "spread " << spread << ", temperature " << temperature);
      Fill(3000, spread, {5.0f, temperature});
      double total = 0.0;
      for (const int32_t id : sorted_) total += weights_[id];
      for (int i = 0; i < 50; ++i) {
        const double target = total * UniformSample(10, static_cast<uint64_t>(i));
        double reached = 0.0;
        size_t expected = 0;
        while ((reached += weights_[sorted_[expected]]) < target) ++expected;
        const WeightRanking::Place place = ranking_.Reach(target);
        EXPECT_EQ(place.id, sorted_[expected]) << target;
        EXPECT_NEAR(place.reached, reached, total * 1e-12);
      }
    }
  }
}

TEST_F(WeightRankingTest, TheFirstAndTheLast) {
  Fill(1000, 20.0, {1.0f, 1.0f});
  EXPECT_EQ(ranking_.Reach(1e-300).id, sorted_.front());
  const WeightRanking::Place last = ranking_.Reach(std::numeric_limits<double>::infinity());
  EXPECT_EQ(last.id, sorted_.back());
  EXPECT_EQ(ranking_.Reach(last.reached).id, sorted_.back());
  EXPECT_NE(ranking_.Reach(last.reached - 1.5 * weights_[sorted_.back()]).id, sorted_.back());
}

// Nothing of earlier tokens stays.
TEST_F(WeightRankingTest, RanksAgain) {
  Fill(3000, 20.0, {1.0f, 1.0f});
  Fill(3, 0.0, {1.0f, 1.0f});
  EXPECT_EQ(ranking_.Reach(std::numeric_limits<double>::infinity()).reached, 2.0);
  EXPECT_EQ(ranking_.Reach(1.5).id, 2);
}

}  // namespace
}  // namespace skein::engine
