// Tensor groups: the neighbours by rank that compute the dense part of a chunk together, when its
// instances are (SP, TP). The orchestrator and the simulator order instances by this file, and ask
// it what that order allows.
//
// Ranks [i tp, (i + 1) tp) are one tensor group; all of a group are on one node, because they
// exchange what they compute several times a layer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// Appends the instances of `joining` that are not yet in *ranks, node by node: first those on the
// node of the last rank, so that a group that has begun gets its neighbours; then the other nodes,
// in the order in which they occur. What is in *ranks keeps its place. node_of(instance) can be
// compared with <; instances whose node is unknown are of one node here.
template <class Instance, class NodeOf>
void JoinByNode(const std::vector<Instance>& joining, NodeOf node_of,
                std::vector<Instance>* ranks) {
  std::map<std::decay_t<decltype(node_of(joining.front()))>, size_t> order;  // of the nodes
  if (!ranks->empty()) order[node_of(ranks->back())] = 0;
  std::vector<std::pair<size_t, Instance>> left;  // with the place of their node
  for (const Instance& one : joining) {
    if (std::find(ranks->begin(), ranks->end(), one) != ranks->end()) continue;
    left.emplace_back(order.try_emplace(node_of(one), order.size()).first->second, one);
  }
  std::stable_sort(left.begin(), left.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [place, one] : left) ranks->push_back(one);
}

// The largest tensor groups that so many ranks can form: a power of two that divides `ranks`, 1 if
// there are no others. together(i, j): those two ranks are on one node. REQUIRES ranks > 0.
template <class Together>
int LargestTensorGroup(size_t ranks, Together together) {
  for (size_t tp = 1;; tp *= 2) {
    if (ranks % (2 * tp) != 0) return static_cast<int>(tp);
    for (size_t rank = 0; rank < ranks; rank += 2 * tp) {
      // The two halves of the group are each on one node already.
      if (!together(rank, rank + tp)) return static_cast<int>(tp);
    }
  }
}

// For a plan whose instances are numbered as `cluster` says: its chunks' ranks, chunk by chunk.
class PlanRanks {
 public:
  explicit PlanRanks(const Cluster& cluster) : node_size_(cluster.node_size) {}

  // Adds a chunk's instances, and returns the tp that it should run with. REQUIRES that the
  // instances of the chunks before are among them.
  int AddChunk(const LatencyModel& model, const std::vector<int>& instances, int64_t history,
               int64_t tokens) {
    if (!model.HasShapes()) return 1;
    JoinByNode(
        instances, [this](int one) { return one / node_size_; }, &ranks_);
    const int possible = LargestTensorGroup(ranks_.size(), [this](size_t a, size_t b) {
      return ranks_[a] / node_size_ == ranks_[b] / node_size_;
    });
    return model.ChooseTp(static_cast<int>(ranks_.size()), history, tokens, possible);
  }

 private:
  int node_size_;
  std::vector<int> ranks_;
};

}  // namespace skein::scheduler
