#include "scheduler/plan/improvement_rate.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace skein::scheduler {
namespace {

ImprovementRateTable Table() {
  return *ImprovementRateTable::Make({{0.5, 0.1}, {1.0, 0.3}, {2.0, 0.7}});
}

TEST(ImprovementRateTableTest, TheNearestLoadDecides) {
  EXPECT_EQ(Table().RateAt(0), 0.1);
  EXPECT_EQ(Table().RateAt(0.74), 0.1);
  EXPECT_EQ(Table().RateAt(0.75), 0.1);
  EXPECT_EQ(Table().RateAt(0.76), 0.3);
  EXPECT_EQ(Table().RateAt(1.0), 0.3);
  EXPECT_EQ(Table().RateAt(1.9), 0.7);
  EXPECT_EQ(Table().RateAt(99), 0.7);
  EXPECT_EQ(ImprovementRateTable::Constant(0.25).RateAt(7), 0.25);
}

TEST(ImprovementRateTableTest, IsRefusedByName) {
  const auto why = [](std::vector<ImprovementRateTable::Row> rows) {
    return std::string(ImprovementRateTable::Make(std::move(rows)).status().message());
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(why({}).find("no row"), std::string::npos);
  EXPECT_NE(why({{1, 0.1}, {1, 0.2}}).find("row 1: requests_per_s is 1"), std::string::npos);
  EXPECT_NE(why({{-1, 0.1}}).find("row 0"), std::string::npos);
  EXPECT_NE(why({{1, 1.0}}).find("improvement_rate is 1"), std::string::npos);
  EXPECT_NE(why({{1, nan}}).find("improvement_rate is nan"), std::string::npos);
}

TEST(SlidingWindowRateTest, CountsTheWindowOnly) {
  SlidingWindowRate window(60 * kSecondUs);
  for (int i = 0; i < 120; ++i) window.OnArrival(i * kSecondUs / 2);  // 2 per second for a minute
  EXPECT_NEAR(window.RequestsPerSecond(60 * kSecondUs), 2, 0.05);
  for (int i = 0; i < 60; ++i) window.OnArrival((60 + i) * kSecondUs);  // then 1
  EXPECT_NEAR(window.RequestsPerSecond(120 * kSecondUs), 1, 0.05);
  EXPECT_EQ(window.RequestsPerSecond(1000 * kSecondUs), 0);
}

TEST(SlidingWindowRateTest, TheWindowIsAsLongAsItsBuckets) {
  SlidingWindowRate window(60 * kSecondUs);
  for (int i = 0; i < 300; ++i) window.OnArrival(i * kSecondUs + kSecondUs / 2);
  EXPECT_DOUBLE_EQ(window.RequestsPerSecond(300 * kSecondUs), 1);  // 59 s, 59 requests
}

TEST(SlidingWindowRateTest, ABurstAtTheBeginningCountsAsOfOneSecond) {
  SlidingWindowRate window(60 * kSecondUs);
  for (int i = 0; i < 10; ++i) window.OnArrival(5 * kSecondUs);
  EXPECT_DOUBLE_EQ(window.RequestsPerSecond(5 * kSecondUs + 1), 10);
}

TEST(SlidingWindowRateTest, AShortHistoryIsNotDilutedByTheWindow) {
  SlidingWindowRate window(60 * kSecondUs);
  for (int i = 0; i < 40; ++i) window.OnArrival(1000 * kSecondUs + i * kSecondUs / 4);
  EXPECT_NEAR(window.RequestsPerSecond(1010 * kSecondUs), 4, 0.01);
}

TEST(ImprovementRateSelectorTest, ChangesEvery30Seconds) {
  ImprovementRateSelector selector(Table());
  EXPECT_EQ(selector.Rate(0), 0.1);
  TimeUs now = 0;
  for (; now < 30 * kSecondUs; now += kSecondUs / 2) {  // 2 per second
    selector.OnArrival(now);
    EXPECT_EQ(selector.Rate(now), 0.1);
  }
  EXPECT_EQ(selector.Rate(30 * kSecondUs), 0.7);
  EXPECT_EQ(selector.Rate(59 * kSecondUs), 0.7);  // no arrivals since, but the period is not over
  EXPECT_EQ(selector.Rate(61 * kSecondUs), 0.1);
}

TEST(ImprovementRateSelectorTest, AReplacedTableIsInForceAtOnce) {
  ImprovementRateSelector selector(Table());
  EXPECT_EQ(selector.Rate(0), 0.1);
  selector.Replace(ImprovementRateTable::Constant(0.5));
  EXPECT_EQ(selector.Rate(1), 0.5);
}

}  // namespace
}  // namespace skein::scheduler
