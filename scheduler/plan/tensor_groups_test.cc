#include "scheduler/plan/tensor_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace skein::scheduler {
namespace {

using Ranks = std::vector<int>;

constexpr int kNode = 4;
int NodeOf(int instance) { return instance / kNode; }

Ranks Joined(const Ranks& joining, Ranks ranks) {
  JoinByNode(joining, NodeOf, &ranks);
  return ranks;
}

int Largest(const Ranks& ranks) {
  return LargestTensorGroup(
      ranks.size(), [&](size_t a, size_t b) { return NodeOf(ranks[a]) == NodeOf(ranks[b]); });
}

TEST(TensorGroupsTest, InstancesJoinNodeByNode) {
  EXPECT_EQ(Joined({0, 1, 2, 3}, {}), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(Joined({5, 0, 6, 1}, {}), (Ranks{5, 6, 0, 1}));
  EXPECT_EQ(Joined({0, 1, 4, 5}, {4}), (Ranks{4, 5, 0, 1})) << "the lead's node first";
  EXPECT_EQ(Joined({0, 1, 2, 3, 4, 5, 6, 7}, {0, 5}), (Ranks{0, 5, 4, 6, 7, 1, 2, 3}));
  EXPECT_EQ(Joined({0, 1}, {0, 1}), (Ranks{0, 1}));
}

TEST(TensorGroupsTest, GroupsAreOfOneNode) {
  EXPECT_EQ(Largest({7}), 1);
  EXPECT_EQ(Largest({0, 1, 2, 3}), 4);
  EXPECT_EQ(Largest({3, 0, 2, 1}), 4);
  EXPECT_EQ(Largest({0, 1, 4, 5}), 2);
  EXPECT_EQ(Largest({0, 4, 1, 5}), 1);
  EXPECT_EQ(Largest({0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(Largest({0, 1, 2, 3, 4, 8}), 1) << "two nodes in the last two ranks";
  EXPECT_EQ(Largest({0, 1, 2, 3, 4, 5}), 2) << "4 does not divide 6";
  EXPECT_EQ(Largest({0, 1, 2}), 1);
}

// The instances of a plan's next chunk: at random, or node by node, those of its own node first.
Ranks NextGroup(const Ranks& ranks, size_t size, std::mt19937_64* random) {
  constexpr int kInstances = 32;
  Ranks order;
  for (int i = 0; i < kInstances; ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), *random);
  if ((*random)() % 3 != 0) {
    const int own = NodeOf(ranks.empty() ? order.front() : ranks.front());
    std::stable_sort(order.begin(), order.end(), [own](int a, int b) {
      return std::pair(NodeOf(a) != own, NodeOf(a)) < std::pair(NodeOf(b) != own, NodeOf(b));
    });
  }
  std::set<int> group(ranks.begin(), ranks.end());
  for (size_t i = 0; group.size() < size; ++i) group.insert(order[i]);
  return Ranks(group.begin(), group.end());
}

// Each `tp` neighbours of these ranks are on one node.
bool Holds(const Ranks& ranks, size_t tp) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (NodeOf(ranks[rank / tp * tp]) != NodeOf(ranks[rank])) return false;
  }
  return ranks.size() % tp == 0;
}

TEST(TensorGroupsTest, RanksOfRandomPlansKeepTheirPlacesAndFormTheLargestGroups) {
  std::mt19937_64 random(3);
  std::map<int, int> plans_by_tp;
  for (int i = 0; i < 3000; ++i) {
    Ranks ranks;
    for (size_t size = 1; size <= 16; size *= 2) {
      if (random() % 3 == 0) continue;
      const Ranks group = NextGroup(ranks, size, &random);
      const Ranks before = ranks;
      JoinByNode(group, NodeOf, &ranks);
      ASSERT_EQ(ranks.size(), size);
      ASSERT_EQ(std::set<int>(ranks.begin(), ranks.end()),
                std::set<int>(group.begin(), group.end()));
      ASSERT_TRUE(std::equal(before.begin(), before.end(), ranks.begin()));
      const auto tp = static_cast<size_t>(Largest(ranks));
      ASSERT_TRUE(Holds(ranks, tp));
      ASSERT_FALSE(2 * tp <= size && Holds(ranks, 2 * tp));
      ++plans_by_tp[static_cast<int>(tp)];
    }
  }
  for (const int tp : {1, 2, 4}) EXPECT_GT(plans_by_tp[tp], 300) << tp;
  EXPECT_EQ(plans_by_tp.size(), 3u) << "a node has four";
}

TEST(TensorGroupsTest, APlansChunksRunInTheFastestShapeThatItsRanksAllow) {
  // Of two or four instances, tp costs nothing and saves time; the most is the fastest.
  const auto shape = [](double a_s) { return SpCoefficients{a_s, 1e-3, 0, 0}; };
  const LatencyModel model =
      *LatencyModel::Make({{1, shape(8)}, {2, shape(8)}, {4, shape(8)}},
                          {{2, 2, shape(4)}, {4, 2, shape(4)}, {4, 4, shape(2)}});
  const Cluster cluster{8, kNode};
  PlanRanks whole(cluster);
  EXPECT_EQ(whole.AddChunk(model, {1}, 0, 10), 1);
  EXPECT_EQ(whole.AddChunk(model, {0, 1}, 10, 10), 2);
  EXPECT_EQ(whole.AddChunk(model, {0, 1, 2, 3}, 20, 10), 4);
  PlanRanks two_nodes(cluster);
  EXPECT_EQ(two_nodes.AddChunk(model, {4}, 0, 10), 1);
  EXPECT_EQ(two_nodes.AddChunk(model, {0, 1, 4, 5}, 10, 10), 2);
  PlanRanks mixed(cluster);
  EXPECT_EQ(mixed.AddChunk(model, {0, 4}, 0, 10), 1);
  EXPECT_EQ(mixed.AddChunk(model, {0, 1, 4, 5}, 10, 10), 1) << "the first ranks keep their places";
  const LatencyModel plain = *LatencyModel::Make({{1, shape(8)}, {2, shape(8)}});
  PlanRanks of_plain(cluster);
  EXPECT_EQ(of_plain.AddChunk(plain, {0, 1}, 0, 10), 1);
}

}  // namespace
}  // namespace skein::scheduler
