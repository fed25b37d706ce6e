#include "scheduler/plan/cdsp/node_groups.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void Group::Clear() {
  shares.clear();
  size = 0;
  ready_s = 0;
}

NodeGroups::NodeGroups(const Cluster& cluster)
    : cluster_(cluster),
      queue_s_(static_cast<size_t>(cluster.instances)),
      order_(static_cast<size_t>(cluster.instances)),
      used_(static_cast<size_t>(cluster.nodes()), 0),
      listed_(static_cast<size_t>(cluster.instances), 0) {
  group_pool_.counts.resize(static_cast<size_t>(cluster.nodes()));
  std::iota(order_.begin(), order_.end(), 0);
  for (int node = 0; node < cluster.nodes(); ++node) {
    cluster_pool_.counts.push_back(Capacity(node));
    keys_.push_back({.count = Capacity(node), .node = node});
  }
  cluster_pool_.shares.resize(keys_.size());
}

int NodeGroups::Capacity(int node) const {
  return std::min(cluster_.node_size, cluster_.instances - Begin(node));
}

void NodeGroups::Reset(absl::Span<const double> queue_s) {
  for (int node = 0; node < cluster_.nodes(); ++node) SortNode(node, queue_s);
  SortCluster();
  UseCluster();
}

// Stable: equal instances stay ordered by number. Few nodes change their order between states, so
// the last order is tried first. Small nodes are sorted by rank, which has no unpredictable branch.
void NodeGroups::SortNode(int node, absl::Span<const double> queue_s) {
  const int begin = Begin(node);
  const int count = Capacity(node);
  int* const order = order_.data() + begin;
  double* const times = queue_s_.data() + begin;
  const auto take_times = [&] {
    for (int i = 0; i < count; ++i) times[i] = queue_s[static_cast<size_t>(order[i])];
  };
  take_times();
  bool sorted = true;
  for (int i = 1; i < count; ++i) {
    sorted &= times[i - 1] < times[i] || (times[i - 1] == times[i] && order[i - 1] < order[i]);
  }
  if (sorted) return;
  if (count <= kRankedMax) return RankNode(begin, count, queue_s.data() + begin);
  std::sort(order, order + count, [&](int a, int b) {
    const double at = queue_s[static_cast<size_t>(a)];
    const double bt = queue_s[static_cast<size_t>(b)];
    return at < bt || (at == bt && a < b);
  });
  take_times();
}

void NodeGroups::RankNode(int begin, int count, const double* queue_s) {
  std::array<int, kRankedMax> ranks = {};
  for (int i = 1; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      const int after = queue_s[j] <= queue_s[i] ? 1 : 0;
      ranks[static_cast<size_t>(i)] += after;
      ranks[static_cast<size_t>(j)] += 1 - after;
    }
  }
  for (int i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(begin + ranks[static_cast<size_t>(i)]);
    queue_s_[place] = queue_s[i];
    order_[place] = begin + i;
  }
}

// Most of a group's nodes are whole and already in the cluster's order.
void NodeGroups::UsePool(const Group& group) {
  std::fill(group_pool_.counts.begin(), group_pool_.counts.end(), 0);
  for (const NodeShare& share : group.shares) {
    group_pool_.counts[static_cast<size_t>(share.node)] = share.count;
  }
  std::vector<NodeShare>& shares = group_pool_.shares;
  shares.clear();
  for (const NodeShare& whole : cluster_pool_.shares) {
    if (group_pool_.counts[static_cast<size_t>(whole.node)] == whole.count) shares.push_back(whole);
  }
  const auto before = [this](const NodeShare& a, const NodeShare& b) {
    if (a.count != b.count) return a.count > b.count;
    const double at = ReadyOf(a);
    const double bt = ReadyOf(b);
    return at != bt ? at < bt : a.node < b.node;
  };
  for (const NodeShare& share : group.shares) {
    if (share.count == Capacity(share.node)) continue;
    shares.insert(std::upper_bound(shares.begin(), shares.end(), share, before), share);
  }
  pool_ = &group_pool_;
}

// Sorts the whole cluster, starting from the last order, like SortNode.
void NodeGroups::SortCluster() {
  const auto before = [](const NodeKey& a, const NodeKey& b) {
    if (a.count != b.count) return a.count > b.count;
    return a.ready_s != b.ready_s ? a.ready_s < b.ready_s : a.node < b.node;
  };
  for (NodeKey& key : keys_) key.ready_s = ReadyOf({key.node, key.count});
  const size_t moves_max = 4 * keys_.size();  // beyond this, a full sort is cheaper
  size_t moves = 0;
  for (size_t i = 1; i < keys_.size() && moves <= moves_max; ++i) {
    const NodeKey key = keys_[i];
    size_t place = i;
    for (; place > 0 && before(key, keys_[place - 1]); --place, ++moves) {
      keys_[place] = keys_[place - 1];
    }
    keys_[place] = key;
  }
  if (moves > moves_max) std::sort(keys_.begin(), keys_.end(), before);
  for (size_t i = 0; i < keys_.size(); ++i) {
    cluster_pool_.shares[i] = {keys_[i].node, keys_[i].count};
  }
}

int NodeGroups::BestNode(int count) const {
  const NodeShare* best = BestFor(count);
  return best == nullptr ? -1 : best->node;
}

void NodeGroups::Start(int node, int count, Group* group) const {
  group->Clear();
  Add({node, count}, group);
}

void NodeGroups::Add(NodeShare share, Group* group) const {
  group->shares.push_back(share);
  group->size += share.count;
  group->ready_s = std::max(group->ready_s, ReadyOf(share));
}

// Adds the rest of the group's own nodes; returns how many are still missing.
int NodeGroups::Fill(int missing, Group* group) {
  for (NodeShare& share : group->shares) {
    const int room = pool_->counts[static_cast<size_t>(share.node)] - share.count;
    const int taken = std::min(room, missing);
    if (taken <= 0) continue;
    share.count += taken;
    group->size += taken;
    group->ready_s = std::max(group->ready_s, ReadyOf(share));
    missing -= taken;
  }
  return missing;
}

// The unused node of the pool whose `count` soonest instances are free first; null if no node has
// that many.
const NodeShare* NodeGroups::BestFor(int count) const {
  const NodeShare* best = nullptr;
  double best_s = 0;
  for (const NodeShare& share : pool_->shares) {
    if (share.count < count) break;  // so do all that follow
    if (used_[static_cast<size_t>(share.node)] != 0) continue;
    const double ready_s = ReadyOf({share.node, count});
    if (best == nullptr || ready_s < best_s || (ready_s == best_s && share.node < best->node)) {
      best = &share;
      best_s = ready_s;
    }
  }
  return best;
}

void NodeGroups::Extend(int size, Group* group) {
  int missing = Fill(size - group->size, group);
  if (missing == 0) return;
  for (const NodeShare& share : group->shares) used_[static_cast<size_t>(share.node)] = 1;
  for (auto next = pool_->shares.cbegin(); missing > 0;) {
    while (next != pool_->shares.cend() && used_[static_cast<size_t>(next->node)] != 0) ++next;
    SKEIN_CHECK_MSG(next != pool_->shares.cend(), "the pool is smaller than the group asked for");
    const NodeShare* share = missing < next->count ? BestFor(missing) : &*next;
    const int taken = std::min(missing, share->count);
    Add({share->node, taken}, group);
    used_[static_cast<size_t>(share->node)] = 1;
    missing -= taken;
  }
  for (const NodeShare& share : group->shares) used_[static_cast<size_t>(share.node)] = 0;
}

void NodeGroups::List(const Group& group, std::vector<int>* instances) {
  instances->clear();
  for (const NodeShare& share : group.shares) {
    const int begin = Begin(share.node);
    for (int i = begin; i < begin + share.count; ++i) {
      listed_[static_cast<size_t>(order_[static_cast<size_t>(i)])] = 1;
    }
  }
  for (int i = 0; i < cluster_.instances; ++i) {
    if (std::exchange(listed_[static_cast<size_t>(i)], uint8_t{0}) != 0) instances->push_back(i);
  }
}

}  // namespace skein::scheduler
