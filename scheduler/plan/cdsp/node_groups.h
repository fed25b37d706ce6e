// Groups of instances for a given cluster state, by the extension rules of Tetris section 5.1:
// first the instances of earlier chunks, then the rest of their nodes, then whole nodes with the
// shortest queues, then the node whose missing instances are free first. Part of CdspPlanner.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// The `count` instances of a node that are free first.
struct NodeShare {
  int node = 0;
  int count = 0;
};

// Shares of different nodes. A longer group of the same chain contains the shorter one.
struct Group {
  std::vector<NodeShare> shares;
  int size = 0;
  double ready_s = 0;  // when all its instances are free

  void Clear();
};

// Instances by node, and within a node by queue time (equal ones by number). One per planner;
// reuses its memory.
class NodeGroups {
 public:
  explicit NodeGroups(const Cluster& cluster);
  NodeGroups(const NodeGroups&) = delete;  // pool_ points into it
  NodeGroups& operator=(const NodeGroups&) = delete;

  // Loads a new state; the pool becomes the whole cluster.
  void Reset(absl::Span<const double> queue_s);

  // Groups are taken from a pool: the whole cluster, or a copy of one group.
  void UseCluster() { pool_ = &cluster_pool_; }
  void UsePool(const Group& group);

  // The node of the pool whose `count` soonest instances are free first; -1 if no node has that
  // many.
  int BestNode(int count) const;
  // Sets *group to the `count` soonest instances of a node of the pool that has that many.
  void Start(int node, int count, Group* group) const;

  // Grows *group to `size` instances of the pool. REQUIRES the pool has that many and *group is
  // empty or part of the pool.
  void Extend(int size, Group* group);

  // The instances of a group, ascending.
  void List(const Group& group, std::vector<int>* instances);

 private:
  struct Pool {
    std::vector<NodeShare> shares;  // largest first, among equals the soonest ready
    std::vector<int> counts;        // [nodes]
  };

  static constexpr int kRankedMax = 16;  // instances per node

  struct NodeKey {
    int count = 0;
    double ready_s = 0;  // when the whole node is free
    int node = 0;
  };

  int Begin(int node) const { return node * cluster_.node_size; }
  int Capacity(int node) const;
  double ReadyOf(const NodeShare& share) const {
    return queue_s_[static_cast<size_t>(Begin(share.node) + share.count - 1)];
  }
  void SortNode(int node, absl::Span<const double> queue_s);
  void RankNode(int begin, int count, const double* queue_s);
  void SortCluster();
  void Add(NodeShare share, Group* group) const;
  int Fill(int missing, Group* group);
  const NodeShare* BestFor(int count) const;

  Cluster cluster_;
  std::vector<double> queue_s_;  // [instances], node by node, ascending within each
  std::vector<int> order_;       // [instances], the instance of each queue_s_
  Pool cluster_pool_;
  Pool group_pool_;
  const Pool* pool_ = &cluster_pool_;
  std::vector<NodeKey> keys_;    // [nodes], in the order of cluster_pool_.shares
  std::vector<uint8_t> used_;    // [nodes], of the group being extended
  std::vector<uint8_t> listed_;  // [instances]
};

}  // namespace skein::scheduler
