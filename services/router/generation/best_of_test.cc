#include "services/router/generation/best_of.h"

#include <gtest/gtest.h>

namespace skein::services {
namespace {

TEST(BestOfTest, HighestLogprobPerTokenFirst) {
  // -1, -0.5, -2 and nothing per token; the sums would order them otherwise.
  const std::vector<ChoiceScore> scores = {{-2, 2}, {-5, 10}, {-2, 1}, {0, 0}};
  EXPECT_EQ(BestOf(scores, 4), (std::vector<size_t>{1, 0, 2, 3}));
  EXPECT_EQ(BestOf(scores, 2), (std::vector<size_t>{1, 0}));
}

TEST(BestOfTest, EqualOnesStayInOrder) {
  EXPECT_EQ(BestOf({{-1, 1}, {-2, 2}, {-3, 3}}, 3), (std::vector<size_t>{0, 1, 2}));
}

}  // namespace
}  // namespace skein::services
