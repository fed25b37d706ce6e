#include "scheduler/orchestrator/registry/instance.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr RequestId kA{7, 1}, kB{7, 2}, kC{7, 3};

Instance With(const std::vector<std::pair<RequestId, uint64_t>>& requests) {
  Instance instance;
  for (const auto& [id, epoch] : requests) instance.placed[id] = {{epoch}, nullptr};
  return instance;
}

std::vector<uint64_t> SerialsOf(const std::vector<HeldRequest>& held) {
  std::vector<uint64_t> serials;
  for (const HeldRequest& one : held) serials.push_back(one.id.serial);
  return serials;
}

TEST(InstanceResync, WhatIsHeldAndNotPlacedIsUnknownButAPredecessorsIsLeftAlone) {
  const Instance instance = With({{kA, 12}});
  EXPECT_EQ(SerialsOf(instance.UnknownOf({{kA, {12}}, {kB, {13}}, {kC, {9}}}, 10)),
            std::vector<uint64_t>{2});
  EXPECT_EQ(SerialsOf(instance.UnknownOf({{kA, {11}}}, 10)), std::vector<uint64_t>{1});
  EXPECT_TRUE(instance.UnknownOf({}, 10).empty());
}

TEST(InstanceResync, WhatIsPlacedIsHeldUnderItsEpochOrMissing) {
  const Instance instance = With({{kA, 12}, {kB, 13}, {kC, 14}});
  const Instance::Compared compared = instance.CompareHeld({{kB, {13}}, {kC, {11}}});
  EXPECT_EQ(SerialsOf(compared.held), std::vector<uint64_t>{2});
  EXPECT_EQ(SerialsOf(compared.missing), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(compared.missing[1].epoch, Epoch{14});
}

}  // namespace
}  // namespace skein::scheduler
