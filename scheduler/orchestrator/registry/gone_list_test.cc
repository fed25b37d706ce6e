#include "scheduler/orchestrator/registry/gone_list.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace skein::scheduler {
namespace {

Gone Instance(uint64_t id, Role role, const std::string& model, TimeUs at_us = 0) {
  return {.instance = {id}, .role = role, .model = model, .at_us = at_us};
}
std::vector<bool> Replaced(const GoneList& list, TimeUs now = 0) {
  std::vector<bool> replaced;
  for (const Gone& gone : list.Latest(now)) replaced.push_back(gone.replaced);
  return replaced;
}

TEST(GoneListTest, TheOldestLostOneOfAKindIsReplacedFirst) {
  GoneList list(10, kSecondUs);
  list.Add(Instance(1, Role::kPrefill, "m"));
  list.Add(Instance(2, Role::kDecode, "m"));
  list.Add(Instance(3, Role::kPrefill, "m"));
  list.Add(Instance(4, Role::kPrefill, "other"));
  EXPECT_FALSE(list.InstanceCame(Role::kDecode, "other"));
  EXPECT_TRUE(list.InstanceCame(Role::kPrefill, "m"));
  EXPECT_EQ(Replaced(list), (std::vector<bool>{false, false, false, true}));  // the latest first
  EXPECT_TRUE(list.InstanceCame(Role::kPrefill, "m"));
  EXPECT_EQ(Replaced(list), (std::vector<bool>{false, true, false, true}));
  EXPECT_FALSE(list.InstanceCame(Role::kPrefill, "m"));
}

TEST(GoneListTest, WhoSaidGoodbyeIsNotReplaced) {
  GoneList list(10, kSecondUs);
  Gone left = Instance(1, Role::kPrefill, "m");
  left.left = true;
  list.Add(left);
  EXPECT_FALSE(list.InstanceCame(Role::kPrefill, "m"));
}

TEST(GoneListTest, ARouterReplacesARouter) {
  GoneList list(10, kSecondUs);
  list.Add(Instance(1, Role::kPrefill, ""));
  list.Add({.endpoint = "r:1"});
  EXPECT_FALSE(list.InstanceCame(Role::kDecode, ""));
  list.RouterCame();
  EXPECT_EQ(Replaced(list), (std::vector<bool>{true, false}));
}

TEST(GoneListTest, IsBoundedInNumberAndTime) {
  GoneList list(2, kSecondUs);
  list.Add(Instance(1, Role::kPrefill, "m", 10));
  list.Add(Instance(2, Role::kPrefill, "m", 20));
  list.Add(Instance(3, Role::kPrefill, "m", 30));
  const std::vector<Gone> latest = list.Latest(30);
  ASSERT_EQ(latest.size(), 2u);
  EXPECT_EQ(latest[0].instance, InstanceId{3});
  EXPECT_EQ(latest[1].instance, InstanceId{2});
  EXPECT_EQ(list.Latest(20 + kSecondUs).size(), 2u);
  EXPECT_EQ(list.Latest(21 + kSecondUs).size(), 1u);
  EXPECT_TRUE(list.Latest(31 + kSecondUs).empty());
}

}  // namespace
}  // namespace skein::scheduler
