#include "scheduler/orchestrator/registry/refused_peers.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

RefusedPeer At(const std::string& endpoint, const std::string& why = "kv_format") {
  return {.what = "decode-worker", .model = "m", .endpoint = endpoint, .version = "1", .why = why};
}

std::vector<std::string> EndpointsOf(const std::vector<RefusedPeer>& peers) {
  std::vector<std::string> endpoints;
  endpoints.reserve(peers.size());
  for (const RefusedPeer& peer : peers) endpoints.push_back(peer.endpoint);
  return endpoints;
}

using Endpoints = std::vector<std::string>;

TEST(RefusedPeersTest, APeerThatTriesAgainCountsOnce) {
  RefusedPeers peers(4, 100);
  peers.Refuse(At("a"), 10);
  peers.Refuse(At("a"), 20);
  const std::vector<RefusedPeer> latest = peers.Latest(30);
  ASSERT_EQ(latest.size(), 1u);
  EXPECT_EQ(latest[0].first_us, 10);
  EXPECT_EQ(latest[0].last_us, 20);
  EXPECT_EQ(latest[0].times, 2u);
  EXPECT_EQ(latest[0].why, "kv_format");
  peers.Refuse(At("a", "protocol"), 25);
  EXPECT_EQ(peers.Latest(30).at(0).first_us, 25) << "another reason";
  EXPECT_EQ(peers.Latest(30).at(0).times, 1u);
}

TEST(RefusedPeersTest, ItIsForgottenWhenItIsTakenOrTriesNoMore) {
  RefusedPeers peers(4, 100);
  peers.Refuse(At("a"), 10);
  peers.Refuse(At("b"), 50);
  EXPECT_EQ(EndpointsOf(peers.Latest(110)), (Endpoints{"b", "a"}));
  EXPECT_EQ(EndpointsOf(peers.Latest(111)), (Endpoints{"b"}));
  peers.Take("b");
  peers.Take("unknown");
  EXPECT_EQ(EndpointsOf(peers.Latest(111)), Endpoints{});
}

TEST(RefusedPeersTest, ThereIsABoundOnTheirNumber) {
  RefusedPeers peers(2, 100);
  peers.Refuse(At("a"), 10);
  peers.Refuse(At("b"), 20);
  peers.Refuse(At("a"), 30);
  peers.Refuse(At("c"), 40);
  EXPECT_EQ(EndpointsOf(peers.Latest(50)), (Endpoints{"c", "a"}));
}

}  // namespace
}  // namespace skein::scheduler
