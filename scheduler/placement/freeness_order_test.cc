#include "scheduler/placement/freeness_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace skein::scheduler {
namespace {

TEST(FreenessOrderTest, PicksWhatAWalkOverAllCandidatesPicks) {
  std::mt19937 random(7);
  const auto below = [&](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
  };
  FreenessOrder order;
  std::map<InstanceId, DecodeCandidate> known;
  int picked = 0;
  for (int i = 0; i < 20000; ++i) {
    const InstanceId instance{static_cast<uint64_t>(1 + below(12))};
    if (below(8) == 0) {
      known.erase(instance);
      order.Remove(instance);
    } else {
      const DecodeCandidate candidate{.instance = instance,
                                      .free_blocks = below(20),
                                      .unreported_blocks = below(10),
                                      .active_requests = below(4),
                                      .unreported_requests = below(3),
                                      .step_s = static_cast<double>(below(4) * below(4))};
      known[instance] = candidate;
      order.Set(candidate);
    }
    ASSERT_TRUE(order.CheckInvariants().ok()) << order.CheckInvariants();
    std::vector<DecodeCandidate> all;
    for (const auto& [id, candidate] : known) all.push_back(candidate);
    const int64_t blocks = below(16);
    const auto pick = order.Pick(blocks, [](InstanceId) { return true; });
    ASSERT_EQ(pick, PickDecode(all, blocks));
    picked += pick.has_value() ? 1 : 0;
  }
  EXPECT_GT(picked, 1000);
}

TEST(FreenessOrderTest, OneThatIsNotAllowedIsPassedOver) {
  FreenessOrder order;
  for (const uint64_t id : {1, 2, 3}) {
    order.Set({.instance = {id}, .free_blocks = static_cast<int64_t>(10 * id)});
  }
  const auto pick = [&](int64_t blocks, const std::set<InstanceId>& tried) {
    return order.Pick(blocks, [&](InstanceId id) { return tried.count(id) == 0; });
  };
  EXPECT_EQ(pick(5, {}), InstanceId{3});
  EXPECT_EQ(pick(5, {{3}}), InstanceId{2});
  EXPECT_EQ(pick(15, {{3}}), InstanceId{2});
  EXPECT_EQ(pick(15, {{2}, {3}}), std::nullopt);
  EXPECT_EQ(pick(31, {}), std::nullopt);
}

// A request that no instance has room for comes up again with every change.
TEST(FreenessOrderTest, APickLooksAtFewOfManyCandidates) {
  FreenessOrder order;
  for (uint64_t id = 1; id <= 1024; ++id) {
    order.Set({.instance = {id}, .free_blocks = 100, .active_requests = static_cast<int64_t>(id)});
  }
  int looks = 0;
  const auto allows = [&](InstanceId) {
    ++looks;
    return true;
  };
  EXPECT_EQ(order.Pick(100, allows), InstanceId{1});
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(order.Pick(101, allows), std::nullopt);
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace skein::scheduler
