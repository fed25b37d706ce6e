// Groups of instances for a given cluster state, by the extension rules of Tetris section 5.1:
// first the instances of earlier chunks, then the rest of their nodes, then whole nodes with the
// shortest queues, then the node whose missing instances are free first. Part of CdspPlanner.
//
// A group names no instances until it is listed. Nodes are taken whole in one order, so that a
// group is a number of leading nodes of that order, and the few nodes that were taken otherwise:
// extending it costs the same at 8 and at 1,024 instances.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/plan/cdsp/chunk_path.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// The `count` instances of a node that are free first.
struct NodeShare {
  int node = 0;
  int count = 0;
};

// Belongs to the pool from which it was grown. A longer group of the same chain contains the
// shorter one.
struct Group {
  int leading = 0;                                 // nodes of the pool's order, all of them whole
  std::array<NodeShare, kMaxSpSizes + 1> special;  // other nodes; may lie among the leading ones
  int specials = 0;
  int size = 0;
  double ready_s = 0;  // when all its instances are free

  void Clear() { leading = specials = size = 0, ready_s = 0; }
  absl::Span<const NodeShare> Specials() const {
    return absl::MakeConstSpan(special).first(static_cast<size_t>(specials));
  }
};

// The queue times of all instances, sorted within each node, and the order of the nodes. One per
// planner; reuses its memory.
class NodeGroups {
 public:
  explicit NodeGroups(const Cluster& cluster);
  NodeGroups(const NodeGroups&) = delete;  // pool_ points into it
  NodeGroups& operator=(const NodeGroups&) = delete;

  // Loads a new state; the pool becomes the whole cluster. queue_s must live until the last call of
  // List for this state.
  void Reset(absl::Span<const double> queue_s);

  // Groups are taken from a pool: the whole cluster, or a copy of one of its groups.
  void UseCluster() { pool_ = &cluster_pool_; }
  void UsePool(const Group& group);  // REQUIRES a group of the cluster

  // The node of the pool whose `count` soonest instances are free first; -1 if no node has that
  // many.
  int BestNode(int count) const;
  // Sets *group to the `count` soonest instances of a node of the pool that has that many.
  void Start(int node, int count, Group* group) const;

  // Grows *group to `size` instances of the pool, at most kMaxSpSizes times. REQUIRES the pool has
  // that many and *group is empty or was grown from it.
  void Extend(int size, Group* group) const;

  // The instances of a group of the pool, ascending.
  void List(const Group& group, std::vector<int>* instances);

 private:
  struct Entry {
    double ready_s = 0;  // when the last of its `count` instances is free
    int node = 0;
    int count = 0;
  };

  // Largest nodes first, among equals the soonest ready, then by number.
  struct Pool {
    std::vector<Entry> order;
    size_t full = 0;          // leading entries of node_size instances
    std::vector<int> places;  // [nodes], in `order`; of nodes of the pool
  };

  static bool Before(const Entry& a, const Entry& b);

  int Begin(int node) const { return node * cluster_.node_size; }
  int Capacity(int node) const;
  double ReadyOf(int node, int count) const {
    return times_[static_cast<size_t>((count - 1) * cluster_.nodes() + node)];
  }
  const Entry& EntryOf(int node) const {
    return pool_->order[static_cast<size_t>(pool_->places[static_cast<size_t>(node)])];
  }
  void SortWithinNodes(absl::Span<const double> queue_s);
  void SortNodes();
  void NotePlaces(Pool* pool) const;
  bool IsSpecial(const Group& group, int node) const;
  int SpecialsAmong(const Group& group, int begin, int end) const;
  int Fill(int missing, Group* group) const;
  int TakeFullNodes(int missing, Group* group) const;
  void AddSpecial(NodeShare share, Group* group) const;
  int BestFor(int count, const Group& group) const;
  void ListSoonest(NodeShare share, std::vector<int>* instances) const;

  Cluster cluster_;
  absl::Span<const double> queue_s_;
  std::vector<std::pair<int, int>> comparators_;  // of a sorting network for node_size values
  // [node_size, nodes]: row i has the time at which i + 1 instances of each node are free;
  // infinity where a node is smaller. Rows by rank, so that all nodes are sorted side by side.
  std::vector<double> times_;
  Pool cluster_pool_;
  Pool group_pool_;
  const Pool* pool_ = &cluster_pool_;
  std::vector<Entry> merged_;  // scratch of SortNodes
  std::vector<int> counts_;    // [nodes], scratch: zero between calls
};

}  // namespace skein::scheduler
