#include "scheduler/plan/cdsp/node_groups.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// Batcher's odd-even merge sort (Knuth, volume 3, algorithm 5.2.2M) for any number of values.
std::vector<std::pair<int, int>> SortingNetwork(int values) {
  std::vector<std::pair<int, int>> comparators;
  for (int width = 1; width < values; width *= 2) {
    for (int step = width; step >= 1; step /= 2) {
      for (int begin = step % width; begin + step < values; begin += 2 * step) {
        for (int i = begin; i < std::min(begin + step, values - step); ++i) {
          if (i / (2 * width) == (i + step) / (2 * width)) comparators.push_back({i, i + step});
        }
      }
    }
  }
  return comparators;
}

// Leaves the smaller of each pair in `low`. Two comparisons, so that the compiler makes vector
// instructions of them and no branch.
void CompareAndSwap(double* low, double* high, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double a = low[i];
    const double b = high[i];
    low[i] = b < a ? b : a;
    high[i] = a < b ? b : a;
  }
}

}  // namespace

NodeGroups::NodeGroups(const Cluster& cluster)
    : cluster_(cluster),
      comparators_(SortingNetwork(std::min(cluster.node_size, cluster.instances))),
      times_(static_cast<size_t>(cluster.node_size) * static_cast<size_t>(cluster.nodes())),
      counts_(static_cast<size_t>(cluster.nodes()), 0) {
  for (int node = 0; node < cluster.nodes(); ++node) {
    cluster_pool_.order.push_back({0, node, Capacity(node)});
  }
  cluster_pool_.places.resize(cluster_pool_.order.size());
  group_pool_.places.resize(cluster_pool_.order.size());
  merged_.resize(cluster_pool_.order.size());
}

int NodeGroups::Capacity(int node) const {
  return std::min(cluster_.node_size, cluster_.instances - Begin(node));
}

void NodeGroups::Reset(absl::Span<const double> queue_s) {
  queue_s_ = queue_s;
  SortWithinNodes(queue_s);
  SortNodes();
  UseCluster();
}

void NodeGroups::SortWithinNodes(absl::Span<const double> queue_s) {
  const auto nodes = static_cast<size_t>(cluster_.nodes());
  const auto node_size = static_cast<size_t>(cluster_.node_size);
  for (size_t node = 0; node < nodes; ++node) {
    const double* const from = queue_s.data() + node * node_size;
    const auto count = static_cast<size_t>(Capacity(static_cast<int>(node)));
    for (size_t i = 0; i < count; ++i) times_[i * nodes + node] = from[i];
    for (size_t i = count; i < node_size; ++i) {
      times_[i * nodes + node] = std::numeric_limits<double>::infinity();
    }
  }
  for (const auto& [low, high] : comparators_) {
    CompareAndSwap(times_.data() + static_cast<size_t>(low) * nodes,
                   times_.data() + static_cast<size_t>(high) * nodes, nodes);
  }
}

bool NodeGroups::Before(const Entry& a, const Entry& b) {
  if (a.count != b.count) return a.count > b.count;
  return a.ready_s != b.ready_s ? a.ready_s < b.ready_s : a.node < b.node;
}

// The last node alone may be smaller, and then it is the last in the order. The others are merged
// in runs of growing length; a merge takes the smaller of two without a branch, since no processor
// could predict it.
void NodeGroups::SortNodes() {
  std::vector<Entry>& order = cluster_pool_.order;
  for (size_t node = 0; node < order.size(); ++node) {
    const int count = Capacity(static_cast<int>(node));
    order[node] = {ReadyOf(static_cast<int>(node), count), static_cast<int>(node), count};
  }
  const size_t full = order.size() - (order.back().count < cluster_.node_size ? 1 : 0);
  merged_.back() = order.back();
  for (size_t width = 1; width < full; width *= 2) {
    for (size_t begin = 0; begin < full; begin += 2 * width) {
      const Entry* low = order.data() + begin;
      const Entry* high = order.data() + std::min(begin + width, full);
      const Entry* const low_end = high;
      const Entry* const high_end = order.data() + std::min(begin + 2 * width, full);
      Entry* to = merged_.data() + begin;
      while (low != low_end && high != high_end) {
        const ptrdiff_t take_high = high->ready_s < low->ready_s;  // equal: the lower number
        *to++ = low[take_high * (high - low)];
        high += take_high;
        low += 1 - take_high;
      }
      std::copy(high, high_end, std::copy(low, low_end, to));
    }
    order.swap(merged_);
  }
  cluster_pool_.full = full;
  NotePlaces(&cluster_pool_);
}

void NodeGroups::NotePlaces(Pool* pool) const {
  for (size_t i = 0; i < pool->order.size(); ++i) {
    pool->places[static_cast<size_t>(pool->order[i].node)] = static_cast<int>(i);
  }
}

void NodeGroups::UsePool(const Group& group) {
  const std::vector<Entry>& all = cluster_pool_.order;
  std::vector<Entry>& order = group_pool_.order;
  order.assign(all.begin(), all.begin() + group.leading);
  for (const NodeShare& share : group.Specials()) {
    if (cluster_pool_.places[static_cast<size_t>(share.node)] < group.leading) continue;
    const Entry entry{ReadyOf(share.node, share.count), share.node, share.count};
    order.insert(std::upper_bound(order.begin(), order.end(), entry, Before), entry);
  }
  const auto smaller = [this](const Entry& entry) { return entry.count < cluster_.node_size; };
  group_pool_.full =
      static_cast<size_t>(std::find_if(order.begin(), order.end(), smaller) - order.begin());
  NotePlaces(&group_pool_);
  pool_ = &group_pool_;
}

int NodeGroups::BestNode(int count) const { return BestFor(count, {}); }

void NodeGroups::Start(int node, int count, Group* group) const {
  group->Clear();
  AddSpecial({node, count}, group);
}

void NodeGroups::AddSpecial(NodeShare share, Group* group) const {
  group->special[static_cast<size_t>(group->specials++)] = share;
  group->size += share.count;
  group->ready_s = std::max(group->ready_s, ReadyOf(share.node, share.count));
}

bool NodeGroups::IsSpecial(const Group& group, int node) const {
  const auto specials = group.Specials();
  return std::any_of(specials.begin(), specials.end(),
                     [node](const NodeShare& share) { return share.node == node; });
}

// How many special nodes have places begin ... end - 1 in the pool's order.
int NodeGroups::SpecialsAmong(const Group& group, int begin, int end) const {
  const auto specials = group.Specials();
  return static_cast<int>(
      std::count_if(specials.begin(), specials.end(), [&](const NodeShare& share) {
        const int place = pool_->places[static_cast<size_t>(share.node)];
        return place >= begin && place < end;
      }));
}

// Adds the rest of the group's own nodes; returns how many are still missing.
int NodeGroups::Fill(int missing, Group* group) const {
  for (int i = 0; i < group->specials && missing > 0; ++i) {
    NodeShare& share = group->special[static_cast<size_t>(i)];
    const int taken = std::min(EntryOf(share.node).count - share.count, missing);
    if (taken <= 0) continue;
    share.count += taken;
    group->size += taken;
    group->ready_s = std::max(group->ready_s, ReadyOf(share.node, share.count));
    missing -= taken;
  }
  return missing;
}

// Adds as many of the next full nodes as fit; returns how many instances are still missing.
int NodeGroups::TakeFullNodes(int missing, Group* group) const {
  const auto full = static_cast<int>(pool_->full);
  const int begin = group->leading;
  const int wanted = missing / cluster_.node_size;
  int end = begin;
  for (int next = begin + wanted; end != next;) {  // special nodes on the way are not counted
    end = next;
    next = begin + wanted + SpecialsAmong(*group, begin, end);
  }
  end = std::min(end, full);
  if (end <= begin) return missing;
  const int taken = (end - begin - SpecialsAmong(*group, begin, end)) * cluster_.node_size;
  group->leading = end;
  group->size += taken;
  group->ready_s = std::max(group->ready_s, pool_->order[static_cast<size_t>(end - 1)].ready_s);
  return missing - taken;
}

// The unused node of the pool whose `count` soonest instances are free first; -1 if no node has
// that many.
int NodeGroups::BestFor(int count, const Group& group) const {
  int best = -1;
  double best_s = 0;
  for (auto i = static_cast<size_t>(group.leading); i < pool_->order.size(); ++i) {
    const Entry& entry = pool_->order[i];
    if (entry.count < count) break;  // so do all that follow
    const double ready_s = ReadyOf(entry.node, count);
    if (best >= 0 && (ready_s > best_s || (ready_s == best_s && entry.node > best))) continue;
    if (IsSpecial(group, entry.node)) continue;
    best = entry.node;
    best_s = ready_s;
  }
  return best;
}

void NodeGroups::Extend(int size, Group* group) const {
  int missing = Fill(size - group->size, group);
  if (missing > 0) missing = TakeFullNodes(missing, group);
  while (missing > 0) {
    const auto next = static_cast<size_t>(group->leading);
    SKEIN_CHECK_MSG(next < pool_->order.size(), "the pool is smaller than the group asked for");
    const Entry& entry = pool_->order[next];
    if (IsSpecial(*group, entry.node)) {
      ++group->leading;
      continue;
    }
    if (missing < entry.count) return AddSpecial({BestFor(missing, *group), missing}, group);
    ++group->leading;
    group->size += entry.count;
    group->ready_s = std::max(group->ready_s, entry.ready_s);
    missing -= entry.count;
  }
}

void NodeGroups::List(const Group& group, std::vector<int>* instances) {
  for (int i = 0; i < group.leading; ++i) {
    const Entry& entry = pool_->order[static_cast<size_t>(i)];
    counts_[static_cast<size_t>(entry.node)] = entry.count;
  }
  for (const NodeShare& share : group.Specials()) {
    counts_[static_cast<size_t>(share.node)] = share.count;
  }
  instances->clear();
  for (int node = 0; node < cluster_.nodes(); ++node) {
    const int count = std::exchange(counts_[static_cast<size_t>(node)], 0);
    if (count == 0) continue;
    if (count < Capacity(node)) {
      ListSoonest({node, count}, instances);
      continue;
    }
    for (int i = Begin(node); i < Begin(node) + count; ++i) instances->push_back(i);
  }
}

// Of instances that are free at the same time, those with the lower numbers.
void NodeGroups::ListSoonest(NodeShare share, std::vector<int>* instances) const {
  const double last_s = ReadyOf(share.node, share.count);
  const int begin = Begin(share.node);
  const auto times =
      queue_s_.subspan(static_cast<size_t>(begin), static_cast<size_t>(Capacity(share.node)));
  const auto sooner = std::count_if(times.begin(), times.end(),
                                    [last_s](double queue_s) { return queue_s < last_s; });
  auto equal_left = share.count - static_cast<int>(sooner);
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < last_s || (times[i] == last_s && equal_left-- > 0)) {
      instances->push_back(begin + static_cast<int>(i));
    }
  }
}

}  // namespace skein::scheduler
