#include "scheduler/orchestrator/registry/resync.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr RequestId kA{7, 1}, kB{7, 2}, kC{7, 3};

std::map<RequestId, Placement> Placed(const std::vector<std::pair<RequestId, uint64_t>>& requests) {
  std::map<RequestId, Placement> placed;
  for (const auto& [id, epoch] : requests) placed[id] = {{epoch}, nullptr};
  return placed;
}

std::vector<uint64_t> SerialsOf(const std::vector<HeldRequest>& held) {
  std::vector<uint64_t> serials;
  for (const HeldRequest& one : held) serials.push_back(one.id.serial);
  return serials;
}

TEST(Resync, WhatIsHeldAndNotPlacedIsUnknownButAPredecessorsIsLeftAlone) {
  const auto placed = Placed({{kA, 12}});
  EXPECT_EQ(SerialsOf(UnknownOf(placed, {{kA, {12}}, {kB, {13}}, {kC, {9}}}, 10)),
            std::vector<uint64_t>{2});
  EXPECT_EQ(SerialsOf(UnknownOf(placed, {{kA, {11}}}, 10)), std::vector<uint64_t>{1});
  EXPECT_TRUE(UnknownOf(placed, {}, 10).empty());
}

TEST(Resync, WhatIsPlacedIsHeldUnderItsEpochOrMissing) {
  const auto placed = Placed({{kA, 12}, {kB, 13}, {kC, 14}});
  const PlacedAndHeld compared = CompareHeld(placed, {{kB, {13}}, {kC, {11}}});
  EXPECT_EQ(SerialsOf(compared.held), std::vector<uint64_t>{2});
  EXPECT_EQ(SerialsOf(compared.missing), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(compared.missing[1].epoch, Epoch{14});
}

}  // namespace
}  // namespace skein::scheduler
