#include "services/orchestrator/group_page.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

TEST(GroupPage, TellsMembersAndFormationOfEachGroup) {
  const std::vector<scheduler::GroupStatus> groups = {
      {.name = "m@a",
       .role = scheduler::Role::kDecode,
       .model = "m",
       .node = "a",
       .members = {{3}, {5}},
       .formations = {{.members = {{3}, {5}},
                       .name = "bound(2)",
                       .stage = "stands",
                       .epoch = 9,
                       .pinned = true,
                       .for_us = 500'000,
                       .why = "quiet"}},
       .for_us = 1'500'000,
       .why = "new",
       .rejected = {{"independent", "the group is quiet"}},
       .generation = 7,
       .ready = 1},
      {.role = scheduler::Role::kPrefill, .model = "\xff"}};
  const auto json = nlohmann::json::parse(GroupsJson(groups));
  ASSERT_EQ(json["groups"].size(), 2u);
  const auto& first = json["groups"][0];
  EXPECT_EQ(first["role"], "decode");
  EXPECT_EQ(first["node"], "a");
  EXPECT_EQ(first["instances"], nlohmann::json({3, 5}));
  EXPECT_EQ(first["name"], "m@a");
  EXPECT_EQ(first["formations"][0], nlohmann::json({{"name", "bound(2)"},
                                                    {"instances", {3, 5}},
                                                    {"stage", "stands"},
                                                    {"epoch", 9},
                                                    {"pinned", true},
                                                    {"for_s", 0.5},
                                                    {"why", "quiet"}}));
  EXPECT_EQ(first["rejected"][0]["why"], "the group is quiet");
  EXPECT_EQ(first["for_s"], 1.5);
  EXPECT_EQ(first["why"], "new");
  EXPECT_EQ(first["generation"], 7);
  EXPECT_EQ(first["ready"], 1);
  EXPECT_TRUE(json["groups"][1]["node"].is_null());
  EXPECT_EQ(GroupsJson({}), "{\"groups\":[]}");
}

}  // namespace
}  // namespace skein::services
