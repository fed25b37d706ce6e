#include "scheduler/jobs/job_lines.h"

#include <gtest/gtest.h>

namespace skein::scheduler::jobs {
namespace {

TEST(JobLines, GivesTheLongestFirstAndOnePrefixTogether) {
  // Prefix 7 has the longest line, so its short one comes before the lines of prefix 8.
  JobLines lines({{1, 8, 50}, {2, 7, 10}, {3, 8, 60}, {4, 7, 100}, {5, 8, 50}});
  std::vector<uint64_t> order;
  while (const auto next = lines.Next()) {
    order.push_back(*next);
    lines.Give(*next);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{4, 2, 3, 1, 5}));
  EXPECT_TRUE(lines.CheckInvariants().ok());
}

TEST(JobLines, ALineGoesBackToItsPlace) {
  JobLines lines({{1, 1, 30}, {2, 2, 20}, {3, 3, 10}});
  lines.Give(1);
  lines.Give(2);
  EXPECT_EQ(lines.Next(), 3u);
  lines.TakeBack(1);
  EXPECT_EQ(lines.Next(), 1u);
  EXPECT_EQ(lines.given(), 1);
  EXPECT_EQ(lines.ready(), 2);
  EXPECT_TRUE(lines.CheckInvariants().ok());
}

TEST(JobLines, CountsUntilTheLastOneIsDone) {
  JobLines lines({{1, 1, 30}, {2, 2, 20}, {2, 2, 20}});
  EXPECT_EQ(lines.left(), 2) << "a line counts once";
  lines.Give(1);
  lines.Keep(1);
  lines.Keep(2);
  EXPECT_EQ(lines.keeping(), 2);
  lines.Done(1);
  EXPECT_EQ(lines.tokens_left(), 20);
  lines.Done(2);
  EXPECT_EQ(lines.left(), 0);
  EXPECT_EQ(lines.StateOf(2), JobLines::State::kDone);
  EXPECT_EQ(lines.StateOf(3), std::nullopt);
  EXPECT_TRUE(lines.CheckInvariants().ok());
}

}  // namespace
}  // namespace skein::scheduler::jobs
