#include "scheduler/fairness/tenant_places.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace skein::scheduler {
namespace {

constexpr TimeUs kLaterUs = TenantPlaces::kKnownUs + 1;

TEST(TenantPlaces, OneTenantAloneMayHoldAll) {
  TenantPlaces places(16);
  places.Ask("a", 1, 0);
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(places.MayTake("a"));
    EXPECT_FALSE(places.IsFullFor("a"));
    places.Take("a");
  }
  EXPECT_FALSE(places.MayTake("a"));
  EXPECT_TRUE(places.IsFullFor("a"));
}

TEST(TenantPlaces, WithOthersItLeavesAnEighthFree) {
  TenantPlaces places(16);
  places.Ask("a", 1, 0);
  places.Ask("b", 1, 0);
  int held = 0;
  for (; places.MayTake("a"); ++held) places.Take("a");
  EXPECT_EQ(held, 14);
  EXPECT_TRUE(places.MayTake("b"));
  places.Take("b");
  places.Take("b");
  EXPECT_FALSE(places.MayTake("b"));  // none is left at all
}

TEST(TenantPlaces, WhoFilledAllPlacesIsRefusedAndOthersAreNot) {
  TenantPlaces places(12);
  places.Ask("a", 1, 0);
  for (int i = 0; i < 12; ++i) places.Take("a");
  places.Ask("b", 2, 0);
  EXPECT_TRUE(places.IsFullFor("a"));
  int held = 0;
  for (; !places.IsFullFor("b"); ++held) places.Take("b");
  EXPECT_EQ(held, 8);  // two thirds
  EXPECT_EQ(places.held(), 20);
}

TEST(TenantPlaces, ATenantThatAsksNoMoreIsForgotten) {
  TenantPlaces places(16);
  places.Ask("a", 1, 0);
  places.Ask("b", 3, 0);
  EXPECT_EQ(places.ShareOf("a"), 4);
  places.Ask("a", 1, kLaterUs);
  EXPECT_EQ(places.ShareOf("a"), 16);
}

TEST(TenantPlaces, SharesNeverAddUpToMoreThanAllUnlessTheyAreOneEach) {
  std::mt19937 random(1);
  TenantPlaces places(20);
  std::map<std::string, int64_t> held;
  TimeUs now = 0;
  for (int step = 0; step < 5000; ++step) {
    now += static_cast<TimeUs>(random() % kSecondUs);
    const std::string tenant = std::to_string(random() % 6);
    if (random() % 2 == 0) {
      places.Ask(tenant, static_cast<int64_t>(1 + random() % 4), now);
      if (places.MayTake(tenant)) {
        places.Take(tenant);
        ++held[tenant];
      }
    } else if (held[tenant] > 0) {
      places.GiveBack(tenant);
      --held[tenant];
    }
    ASSERT_EQ(places.HeldBy(tenant), held[tenant]);
    ASSERT_LE(places.held(), 20);
    ASSERT_TRUE(places.CheckInvariants().ok());
  }
}

}  // namespace
}  // namespace skein::scheduler
