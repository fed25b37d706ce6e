#include "scheduler/router/router_count.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr TimeUs kLease = 3 * kSecondUs;

TEST(RouterCountTest, MoreAreBelievedAtOnceAndFewerAfterALease) {
  RouterCount count(1);
  EXPECT_EQ(count.now(), 1);
  count.Welcomed(0, 2, kLease, 0);
  EXPECT_EQ(count.now(), 2);
  count.Told(0, 4, 1);
  EXPECT_EQ(count.now(), 4);
  count.Told(0, 1, 10);
  count.Told(0, 1, 10 + kLease - 1);
  EXPECT_EQ(count.now(), 4);
  count.Told(0, 1, 10 + kLease);
  EXPECT_EQ(count.now(), 1);
}

TEST(RouterCountTest, AnOrchestratorThatTakesOverDoesNotMakeThemFewer) {
  RouterCount count(1);
  count.Welcomed(0, 4, kLease, 0);
  count.Lost(0);
  count.Welcomed(0, 1, kLease, 100);
  count.Told(0, 3, 100 + kLease / 3);
  EXPECT_EQ(count.now(), 4);
  count.Told(0, 4, 100 + kLease / 2);  // all are back
  count.Told(0, 3, 100 + 2 * kLease);
  EXPECT_EQ(count.now(), 4) << "the lease begins with the first that tells fewer";
  count.Told(0, 3, 100 + 3 * kLease);
  EXPECT_EQ(count.now(), 3);
}

TEST(RouterCountTest, OfSeveralCellsTheOneThatKnowsMostIsBelieved) {
  RouterCount count(2);
  count.Welcomed(0, 3, kLease, 0);
  count.Welcomed(1, 2, kLease, 0);
  EXPECT_EQ(count.now(), 3);
  count.Lost(0);
  count.Told(1, 2, 1);
  count.Told(1, 2, 1 + kLease);
  EXPECT_EQ(count.now(), 2);
  count.Lost(1);
  count.Told(0, 2, 2 + kLease);
  EXPECT_EQ(count.now(), 2);
}

}  // namespace
}  // namespace skein::scheduler
