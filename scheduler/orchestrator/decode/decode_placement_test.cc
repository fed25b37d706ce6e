#include "scheduler/orchestrator/decode/decode_placement.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::scheduler {
namespace {

using Standing = DecodePlacement::Standing;

TEST(DecodePlacementTest, APlanWaitsForOlderOnesThatHaveNotOpened) {
  DecodePlacement placement;
  placement.AddUnopened({1}, {10});
  placement.AddUnopened({2}, {20});
  placement.AddUnopened({1}, {20});
  EXPECT_FALSE(placement.MustWait({1}, {10}));
  EXPECT_TRUE(placement.MustWait({1}, {20}));
  EXPECT_FALSE(placement.MustWait({2}, {20}));
  EXPECT_FALSE(placement.MustWait({3}, {20}));
  placement.RemoveUnopened({1}, {10});
  placement.RemoveUnopened({1}, {10});
  EXPECT_FALSE(placement.MustWait({1}, {20}));
  placement.RemoveUnopened({1}, {20});
  placement.RemoveUnopened({2}, {20});
  EXPECT_TRUE(placement.unopened().empty());
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

TEST(DecodePlacementTest, ALineKeepsItsOrderAndAPlaceInIt) {
  DecodePlacement placement;
  const DecodePlacement::Place first{placement.NextNumber()};
  const DecodePlacement::Place second{placement.NextNumber()};
  placement.Wait("m", second, {7, 2});
  placement.Wait("m", first, {7, 1});
  placement.Wait("other", {placement.NextNumber()}, {7, 3});
  EXPECT_EQ(placement.waiting(), 3u);
  placement.SetAsking("m", second, true);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 2}));
  placement.SetAsking("m", first, true);
  EXPECT_EQ(placement.StandingOf("m", first, {7, 1}), Standing::kReady);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 1}));
  placement.Leave("m", first);
  placement.Leave("m", first);
  EXPECT_EQ(placement.StandingOf("m", first, {7, 1}), Standing::kAbsent);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 2}));
  placement.Wait("m", first, {7, 1});  // refused again
  placement.SetAsking("m", first, true);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 1}));
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

TEST(DecodePlacementTest, ALineIsLookedAtOnlyWhenItMayMove) {
  DecodePlacement placement;
  placement.NoteChange("m");
  EXPECT_TRUE(placement.TakeChanged().empty()) << "nobody waits";
  const DecodePlacement::Place number{placement.NextNumber()};
  placement.Wait("m", number, {7, 1});
  EXPECT_TRUE(placement.TakeChanged().empty()) << "its lead does not ask";
  placement.SetAsking("m", number, true);
  EXPECT_EQ(placement.TakeChanged(), std::vector<std::string>{"m"});
  EXPECT_TRUE(placement.TakeChanged().empty());
  placement.NoteChange("m");
  EXPECT_EQ(placement.TakeChanged(), std::vector<std::string>{"m"});
  placement.SetAsking("m", number, false);
  placement.NoteChange("m");
  EXPECT_TRUE(placement.TakeChanged().empty());
}

// What an event looks at does not grow with the line: each plan that opens lets one go on.
TEST(DecodePlacementTest, OfALongLineOnlyThoseThatMayGoOnAreTried) {
  DecodePlacement placement;
  constexpr uint64_t kPlans = 1000;
  placement.AddUnopened({1}, {1});  // the oldest, which does not wait
  for (uint64_t plan = 2; plan <= kPlans; ++plan) {
    placement.AddUnopened({1}, {plan});
    const DecodePlacement::Place number{placement.NextNumber()};
    placement.Wait("m", number, {7, plan});
    placement.SetAsking("m", number, true);
    EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, plan}));
    ASSERT_TRUE(placement.MustWait({1}, {plan}));
    placement.Block("m", number, {plan});
  }
  int tried = 0;
  for (uint64_t plan = 1; plan < kPlans; ++plan) {
    placement.RemoveUnopened({1}, {plan});
    while (const auto ready = placement.FirstReady("m")) {
      EXPECT_EQ(ready, (RequestId{7, plan + 1}));
      ++tried;
      placement.Leave("m", {plan});  // its number
    }
  }
  EXPECT_EQ(tried, static_cast<int>(kPlans) - 1);
  EXPECT_EQ(placement.waiting(), 0u);
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

TEST(DecodePlacementTest, WhoIsBlockedStaysSoOnlyAsLongAsItsLeadAsks) {
  DecodePlacement placement;
  placement.AddUnopened({1}, {10});
  placement.AddUnopened({1}, {20});
  const DecodePlacement::Place number{placement.NextNumber()};
  placement.Wait("m", number, {7, 1});
  placement.SetAsking("m", number, true);
  placement.Block("m", number, {20});
  placement.SetAsking("m", number, true);  // once more
  EXPECT_EQ(placement.StandingOf("m", number, {7, 1}), Standing::kBlocked);
  placement.SetAsking("m", number, false);
  EXPECT_EQ(placement.StandingOf("m", number, {7, 1}), Standing::kNotAsking);
  placement.RemoveUnopened({1}, {10});
  EXPECT_FALSE(placement.FirstReady("m").has_value());
  placement.SetAsking("m", number, true);
  EXPECT_EQ(placement.FirstReady("m"), (RequestId{7, 1}));
  EXPECT_TRUE(placement.CheckInvariants().ok());
}

TEST(DecodePlacement, ThoseOfAHigherPriorityGoFirst) {
  DecodePlacement placement;
  std::vector<DecodePlacement::Place> places;
  for (const int32_t priority : {0, -1, 7, 0, 7}) {
    places.push_back({placement.NextNumber(), priority});
    placement.Wait("m", places.back(), {7, places.size()});
    placement.SetAsking("m", places.back(), true);
  }
  std::vector<uint64_t> firsts, order;
  placement.ForEachFirst([&](RequestId first) { firsts.push_back(first.serial); });
  EXPECT_EQ(firsts, (std::vector<uint64_t>{3, 1, 2}));
  while (const auto first = placement.FirstReady("m")) {
    order.push_back(first->serial);
    placement.Leave("m", places[first->serial - 1]);
    EXPECT_TRUE(placement.CheckInvariants().ok());
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 5, 1, 4, 2}));
}

TEST(DecodePlacementTest, TenantsOfALineTakeTurnsByTokens) {
  DecodePlacement placement;
  std::vector<DecodePlacement::Place> places;
  const auto wait = [&](const char* tenant, TimeUs latest_us) {
    places.push_back({placement.NextNumber()});
    placement.Wait("m", places.back(), {7, places.size()}, {tenant, 1, latest_us});
    placement.SetAsking("m", places.back(), true);
  };
  for (int i = 0; i < 4; ++i) wait("burst", kNever);
  for (int i = 0; i < 2; ++i) wait("quiet", kNever);
  wait("quiet", /*latest_us=*/500);
  EXPECT_EQ(placement.TenantsReady("m", 0), 2U);
  std::vector<uint64_t> served;
  while (const auto first = placement.FirstReady("m", /*now=*/400)) {
    served.push_back(first->serial);
    placement.Serve("m", places[first->serial - 1], 100);
    EXPECT_TRUE(placement.CheckInvariants().ok()) << placement.CheckInvariants();
  }
  EXPECT_EQ(served, (std::vector<uint64_t>{1, 7, 2, 5, 3, 6, 4}));
}

}  // namespace
}  // namespace skein::scheduler
