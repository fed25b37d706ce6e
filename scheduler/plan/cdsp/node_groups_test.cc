#include "scheduler/plan/cdsp/node_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace skein::scheduler {
namespace {

// The extension rules of node_groups.h word for word, on lists of instances: the oracle.
class PlainGroups {
 public:
  PlainGroups(const Cluster& cluster, const std::vector<double>& queue_s)
      : cluster_(cluster), queue_s_(queue_s) {
    for (int i = 0; i < cluster.instances; ++i) pool_.push_back(i);
  }

  void UsePool(const std::vector<int>& pool) { pool_ = pool; }

  // The soonest instances of a node of the pool.
  std::vector<int> Soonest(int node, size_t count) const {
    std::vector<int> of_node;
    for (const int i : pool_) {
      if (i / cluster_.node_size == node) of_node.push_back(i);
    }
    std::sort(of_node.begin(), of_node.end(), [this](int a, int b) {
      return std::make_tuple(QueueOf(a), a) < std::make_tuple(QueueOf(b), b);
    });
    of_node.resize(std::min(count, of_node.size()));
    return of_node;
  }

  void Extend(size_t size, std::vector<int>* group) const {
    for (const int node : NodesOf(*group)) {
      for (const int i : Soonest(node, AllOf(node))) {
        const bool taken = std::find(group->begin(), group->end(), i) != group->end();
        if (!taken && group->size() < size) group->push_back(i);
      }
    }
    while (group->size() < size) {
      const size_t missing = size - group->size();
      int node =
          Best(*group, [&](int n) { return std::make_pair(-int(AllOf(n)), Ready(n, AllOf(n))); });
      if (missing < AllOf(node)) {
        node = Best(*group, [&](int n) {
          return std::make_pair(AllOf(n) < missing ? 1 : 0, Ready(n, missing));
        });
      }
      const std::vector<int> taken = Soonest(node, missing);
      group->insert(group->end(), taken.begin(), taken.end());
    }
  }

  // -1: no node has that many.
  int BestNode(size_t count) const {
    const int node =
        Best({}, [&](int n) { return std::make_pair(AllOf(n) < count ? 1 : 0, Ready(n, count)); });
    return AllOf(node) < count ? -1 : node;
  }

  double ReadyOf(const std::vector<int>& group) const {
    double ready_s = 0;
    for (const int i : group) ready_s = std::max(ready_s, QueueOf(i));
    return ready_s;
  }

 private:
  double QueueOf(int instance) const { return queue_s_[static_cast<size_t>(instance)]; }
  size_t AllOf(int node) const { return Soonest(node, pool_.size()).size(); }
  double Ready(int node, size_t count) const { return ReadyOf(Soonest(node, count)); }

  std::vector<int> NodesOf(const std::vector<int>& group) const {
    std::vector<int> nodes;  // in the order in which they were taken
    for (const int i : group) {
      const int node = i / cluster_.node_size;
      if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
    }
    return nodes;
  }

  // The unused node with instances in the pool that has the least key, among equals the first.
  template <typename Key>
  int Best(const std::vector<int>& group, const Key& key) const {
    const std::vector<int> used = NodesOf(group);
    int best = -1;
    for (int node = 0; node < cluster_.nodes(); ++node) {
      if (AllOf(node) == 0 || std::find(used.begin(), used.end(), node) != used.end()) continue;
      if (best < 0 || key(node) < key(best)) best = node;
    }
    return best;
  }

  const Cluster cluster_;
  const std::vector<double>& queue_s_;
  std::vector<int> pool_;  // ascending
};

class RandomGroups {
 public:
  explicit RandomGroups(const Cluster& cluster) : cluster_(cluster), groups_(cluster), random_(3) {}

  // Uniform times, few different ones, or one for each node.
  std::vector<double> DrawQueue() {
    const int kind = static_cast<int>(random_() % 3);
    std::vector<double> queue_s;
    for (int i = 0; i < cluster_.instances; ++i) {
      const auto time = static_cast<double>(random_() % (kind == 0 ? 1000000 : 4));
      const bool as_neighbour = kind == 2 && i % cluster_.node_size > 0;
      queue_s.push_back(as_neighbour ? queue_s.back() : time);
    }
    return queue_s;
  }

  // Grows chains of random sizes within the pool, and returns one of their groups.
  Group GrowChains(const PlainGroups& plain, int pool_size, bool from_start,
                   std::vector<int>* kept) {
    Group result;
    for (int chain = 0; chain < 4; ++chain) {
      Group group;
      std::vector<int> expected;
      if (from_start && chain % 2 == 1) {
        const int count = 1 + static_cast<int>(random_() % cluster_.node_size);
        const int node = plain.BestNode(static_cast<size_t>(count));
        EXPECT_EQ(groups_.BestNode(count), node);
        if (node >= 0) {
          groups_.Start(node, count, &group);
          expected = plain.Soonest(node, static_cast<size_t>(count));
        }
      }
      int size = std::max(1, group.size);
      for (; size <= pool_size; size += 1 + static_cast<int>(random_() % size)) {
        groups_.Extend(size, &group);
        plain.Extend(static_cast<size_t>(size), &expected);
        ExpectEqual(plain, group, expected);
        if (result.size == 0 || random_() % 2 == 0) {
          result = group;
          *kept = expected;
        }
      }
    }
    std::sort(kept->begin(), kept->end());
    return result;
  }

  void Run() {
    const std::vector<double> queue_s = DrawQueue();
    groups_.Reset(queue_s);
    PlainGroups plain(cluster_, queue_s);
    std::vector<int> pool;
    const Group group = GrowChains(plain, cluster_.instances, /*from_start=*/true, &pool);
    groups_.UsePool(group);
    plain.UsePool(pool);
    std::vector<int> unused;
    GrowChains(plain, group.size, /*from_start=*/false, &unused);
    groups_.UseCluster();
    ExpectEqual(plain, group, pool);
  }

 private:
  void ExpectEqual(const PlainGroups& plain, const Group& group, std::vector<int> expected) {
    std::sort(expected.begin(), expected.end());
    std::vector<int> listed;
    groups_.List(group, &listed);
    EXPECT_EQ(listed, expected);
    EXPECT_EQ(group.size, static_cast<int>(expected.size()));
    EXPECT_EQ(group.ready_s, plain.ReadyOf(expected));
  }

  const Cluster cluster_;
  NodeGroups groups_;
  std::mt19937_64 random_;
};

TEST(NodeGroupsTest, GroupsAreThoseOfTheRulesWordForWord) {
  for (const Cluster& cluster : {Cluster{1, 8}, Cluster{8, 8}, Cluster{3, 8}, Cluster{5, 1},
                                 Cluster{7, 3}, Cluster{16, 4}, Cluster{14, 6}, Cluster{13, 8},
                                 Cluster{36, 6}, Cluster{40, 5}, Cluster{33, 16}, Cluster{64, 8}}) {
    RandomGroups groups(cluster);
    for (int i = 0; i < 40; ++i) {
      SCOPED_TRACE(testing::Message() << cluster.instances << "/" << cluster.node_size << " " << i);
      groups.Run();
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
