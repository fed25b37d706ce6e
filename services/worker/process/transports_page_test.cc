#include "services/worker/process/transports_page.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

engine::HandoffTotals Handoff(uint64_t id, const std::string& peer, uint64_t bytes,
                              double busy_seconds, const std::string& transport = "tcp") {
  engine::HandoffTotals totals;
  totals.id = {id};
  totals.peer = peer;
  totals.transport = transport;
  totals.path = "direct";
  totals.why_not_faster = "another host";
  totals.bytes = bytes;
  totals.busy_seconds = busy_seconds;
  return totals;
}

TEST(TransportsPage, AnInstanceThatWasRestartedIsOneRow) {
  const auto json = nlohmann::json::parse(TransportsJson(
      {Handoff(1, "host:1", 3'000'000'000, 1), Handoff(2, "host:1", 1'000'000'000, 1),
       Handoff(3, "host:1", 7, 1, "mapped+ring"), Handoff(4, "host:2", 0, 0), Handoff(0, "", 5, 1)},
      {}));
  ASSERT_EQ(json["handoffs"].size(), 2u);
  EXPECT_EQ(json["handoffs"][0]["transport"], "mapped+ring");
  const auto& tcp = json["handoffs"][1];
  EXPECT_EQ(tcp["endpoint"], "host:1");
  EXPECT_EQ(tcp["path"], "direct");
  EXPECT_EQ(tcp["bytes"], 4'000'000'000u);
  EXPECT_EQ(tcp["gb_per_s"], 2.0);
  EXPECT_EQ(tcp["why_not_faster"], "another host");
  EXPECT_TRUE(json["groups"].empty());
}

TEST(TransportsPage, GroupsSayWhichWayAndWhy) {
  engine::CommTotals four;
  four.ranks = 4;
  four.path = engine::CommPath::kHost;
  four.why_not = "no GPU";
  four.bytes = 1'000'000'000;
  four.busy_seconds = 2;
  four.best_gb_per_s = 3;
  const auto json = nlohmann::json::parse(TransportsJson({}, {four}));
  ASSERT_EQ(json["groups"].size(), 1u);
  const auto& group = json["groups"][0];
  EXPECT_EQ(group["instances"], 4);
  EXPECT_EQ(group["path"], "host");
  EXPECT_EQ(group["gb_per_s"], 0.5);
  EXPECT_EQ(group["best_gb_per_s"], 3.0);
  EXPECT_EQ(group["why_not_faster"], "no GPU");
}

}  // namespace
}  // namespace skein::services
