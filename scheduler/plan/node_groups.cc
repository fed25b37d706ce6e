#include "scheduler/plan/node_groups.h"

#include <algorithm>
#include <utility>

#include "scheduler/base/check.h"

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
  cluster_pool_.counts.resize(static_cast<size_t>(cluster.nodes()));
  group_pool_.counts.resize(static_cast<size_t>(cluster.nodes()));
}

int NodeGroups::Capacity(int node) const {
  return std::min(cluster_.node_size, cluster_.instances - Begin(node));
}

void NodeGroups::Reset(absl::Span<const double> queue_s) {
  cluster_pool_.shares.clear();
  for (int node = 0; node < cluster_.nodes(); ++node) {
    SortNode(node, queue_s);
    cluster_pool_.shares.push_back({node, Capacity(node)});
  }
  SortPool(&cluster_pool_);
  UseCluster();
}

// Small nodes by insertion, which is the fastest for eight; stable, so equal ones stay by number.
void NodeGroups::SortNode(int node, absl::Span<const double> queue_s) {
  constexpr int kInsertionMax = 16;
  const int begin = Begin(node);
  const int count = Capacity(node);
  if (count > kInsertionMax) {
    const auto first = order_.begin() + begin;
    for (int i = 0; i < count; ++i) first[i] = begin + i;
    std::sort(first, first + count, [&](int a, int b) {
      const double at = queue_s[static_cast<size_t>(a)];
      const double bt = queue_s[static_cast<size_t>(b)];
      return at < bt || (at == bt && a < b);
    });
    for (int i = begin; i < begin + count; ++i) {
      queue_s_[static_cast<size_t>(i)] =
          queue_s[static_cast<size_t>(order_[static_cast<size_t>(i)])];
    }
    return;
  }
  double* times = queue_s_.data() + begin;
  int* order = order_.data() + begin;
  for (int i = 0; i < count; ++i) {
    const double time = queue_s[static_cast<size_t>(begin + i)];
    int place = i;
    for (; place > 0 && times[place - 1] > time; --place) {
      times[place] = times[place - 1];
      order[place] = order[place - 1];
    }
    times[place] = time;
    order[place] = begin + i;
  }
}

void NodeGroups::UsePool(const Group& group) {
  group_pool_.shares.assign(group.shares.begin(), group.shares.end());
  SortPool(&group_pool_);
  pool_ = &group_pool_;
}

void NodeGroups::SortPool(Pool* pool) const {
  std::fill(pool->counts.begin(), pool->counts.end(), 0);
  for (const NodeShare& share : pool->shares) {
    pool->counts[static_cast<size_t>(share.node)] = share.count;
  }
  std::sort(pool->shares.begin(), pool->shares.end(),
            [this](const NodeShare& a, const NodeShare& b) {
              if (a.count != b.count) return a.count > b.count;
              const double at = ReadyOf(a);
              const double bt = ReadyOf(b);
              return at != bt ? at < bt : a.node < b.node;
            });
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

// The rest of the group's own nodes; returns what is still missing.
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

// The unused node of the pool whose `count` soonest instances are free first; null if none has as
// many.
const NodeShare* NodeGroups::BestFor(int count) const {
  const NodeShare* best = nullptr;
  double best_s = 0;
  for (const NodeShare& share : pool_->shares) {
    if (share.count < count) break;  // so have all that follow
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
    SKEIN_INVARIANT_MSG(next != pool_->shares.cend(),
                        "the pool is smaller than the group asked for");
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
