// The rolling planner's choice for one request: which instances could run its remaining tokens,
// when, and at what cost.
#include <algorithm>
#include <limits>

#include "scheduler/plan/rolling/rolling.h"

namespace skein::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLateChunkS = 1e-6;  // a late chunk may end "at any moment"
constexpr double kAbsentS = 1e12;     // never, but finite: costs stay comparable

}  // namespace

void RollingPlanner::LookAtInstances(double now_s) {
  idle_ = 0;
  for (size_t i = 0; i < busy_.size(); ++i) {
    free_s_[i] = busy_[i] ? std::max(end_s_[i], now_s + kLateChunkS) : now_s;
    if (kept_for_[i] >= 0) free_s_[i] = std::max(kept_until_s_[i], now_s + kLateChunkS);
    if (absent_[i]) free_s_[i] = kAbsentS;
    idle_ += free_s_[i] <= now_s ? 1 : 0;
  }
  if (idle_ == 0) return;
  for (int node = 0; node < cluster_.nodes(); ++node) SortNode(node);
}

void RollingPlanner::SortNode(int node) {
  std::vector<int>& order = node_order_[static_cast<size_t>(node)];
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const double free_a = free_s_[static_cast<size_t>(a)];
    const double free_b = free_s_[static_cast<size_t>(b)];
    return free_a != free_b ? free_a < free_b : a < b;
  });
}

// The node whose `size` instances are free first; among equals the one whose next instance is free
// last, so that large groups stay whole elsewhere. If no node is that large: whole nodes in the
// order in which they become free.
int RollingPlanner::HomeFor(int size) const {
  int best = 0;
  double best_s = kInfinity;
  double best_next_s = 0;
  bool best_fits = false;
  for (int node = 0; node < cluster_.nodes(); ++node) {
    const std::vector<int>& order = node_order_[static_cast<size_t>(node)];
    const bool fits = static_cast<int>(order.size()) >= size;
    const size_t last = fits ? static_cast<size_t>(size) - 1 : order.size() - 1;
    const double ready_s = free_s_[static_cast<size_t>(order[last])];
    const double next_s =
        last + 1 < order.size() ? free_s_[static_cast<size_t>(order[last + 1])] : kInfinity;
    const bool sooner = ready_s != best_s ? ready_s < best_s : next_s > best_next_s;
    if (fits == best_fits ? sooner : fits) {
      best = node;
      best_next_s = next_s;
      best_s = ready_s;
      best_fits = fits;
    }
  }
  return best;
}

int RollingPlanner::ChainAt(int home, const Job& job) {
  for (int i = 0; i < chains_used_; ++i) {
    if (chains_[static_cast<size_t>(i)].home == home) return i;
  }
  if (chains_used_ == static_cast<int>(chains_.size())) chains_.emplace_back();
  Chain& chain = chains_[static_cast<size_t>(chains_used_)];
  chain.home = home;
  chain.instances = home < 0 ? job.held : node_order_[static_cast<size_t>(home)];
  ExtendChain(job, &chain);
  FinishChain(&chain);
  return chains_used_++;
}

// First the rest of the nodes already in the chain, then nodes in the order in which they become
// wholly free.
void RollingPlanner::ExtendChain(const Job& job, Chain* chain) const {
  const auto enough = [&] { return static_cast<int>(chain->instances.size()) >= largest_; };
  if (enough()) return;
  std::vector<uint8_t> has(node_order_.size(), 0);
  const auto node_of = [&](int i) { return static_cast<size_t>(i / cluster_.node_size); };
  for (const int instance : chain->instances) has[node_of(instance)] = 1;
  if (chain->home < 0) {
    std::vector<int> rest;
    for (size_t node = 0; node < has.size(); ++node) {
      if (!has[node]) continue;
      for (const int instance : node_order_[node]) {
        if (!std::binary_search(job.held.begin(), job.held.end(), instance)) {
          rest.push_back(instance);
        }
      }
    }
    std::stable_sort(rest.begin(), rest.end(), [&](int a, int b) {
      return free_s_[static_cast<size_t>(a)] < free_s_[static_cast<size_t>(b)];
    });
    chain->instances.insert(chain->instances.end(), rest.begin(), rest.end());
  }
  while (!enough()) {
    size_t best = has.size();
    double best_s = kInfinity;
    for (size_t node = 0; node < has.size(); ++node) {
      const double ready_s = free_s_[static_cast<size_t>(node_order_[node].back())];
      if (has[node] || ready_s >= best_s) continue;
      best = node;
      best_s = ready_s;
    }
    has[best] = 1;
    chain->instances.insert(chain->instances.end(), node_order_[best].begin(),
                            node_order_[best].end());
  }
}

void RollingPlanner::FinishChain(Chain* chain) const {
  chain->ready_s.clear();
  chain->sum_s.clear();
  double ready_s = 0;
  double sum_s = 0;
  for (const int instance : chain->instances) {
    const double free_s = free_s_[static_cast<size_t>(instance)];
    ready_s = std::max(ready_s, free_s);
    sum_s += free_s;
    chain->ready_s.push_back(ready_s);
    chain->sum_s.push_back(sum_s);
  }
}

RollingPlanner::Option RollingPlanner::Choose(const Ask& ask) {
  chains_used_ = 0;
  Option best;
  best.cost = kInfinity;
  TryPlans(ask, 0, inner_, &best);
  const bool calm =
      best.chain >= 0 && best.plan_end_s <= ask.job.arrival_s + options_.tuning.calm_s;
  if (!calm && inner_ < sizes_) TryPlans(ask, inner_, sizes_, &best);
  return best;
}

// All plans whose largest SP size index is in [from, to).
void RollingPlanner::TryPlans(const Ask& ask, int from, int to, Option* best) {
  for (int i = 0; i < to; ++i) {
    const int size = model_.sp_sizes()[static_cast<size_t>(i)];
    if (size < static_cast<int>(ask.job.held.size())) continue;
    const int chain = ChainAt(ask.job.held.empty() ? HomeFor(size) : -1, ask.job);
    if (i >= from) TrySingle(ask, i, chain, best);
    for (int j = std::max(i + 1, from); j < to; ++j) TryPair(ask, i, j, chain, best);
  }
}

void RollingPlanner::TrySingle(const Ask& ask, int index, int chain_index, Option* best) const {
  const Chain& chain = chains_[static_cast<size_t>(chain_index)];
  const int64_t rest = ask.job.prompt_tokens - ask.job.started_tokens;
  const int size = model_.sp_sizes()[static_cast<size_t>(index)];
  const auto last = static_cast<size_t>(size) - 1;
  const double start_s = chain.ready_s[last];
  const double seconds = model_.SecondsAt(index, ask.job.started_tokens, rest);
  const double wasted_s = size * start_s - chain.sum_s[last];
  const double cost = start_s + seconds - ask.now_s + ask.price * (size * seconds + wasted_s);
  if (cost >= best->cost) return;
  *best = {cost, start_s, start_s + seconds, rest, size, chain_index, size, start_s + seconds};
}

// A first chunk that ends when a larger group is free, which then runs the rest (algorithm 3).
void RollingPlanner::TryPair(const Ask& ask, int first, int second, int chain_index,
                             Option* best) const {
  const Chain& chain = chains_[static_cast<size_t>(chain_index)];
  const int64_t started = ask.job.started_tokens;
  const int64_t rest = ask.job.prompt_tokens - started;
  const int size = model_.sp_sizes()[static_cast<size_t>(first)];
  const int next_size = model_.sp_sizes()[static_cast<size_t>(second)];
  const auto last = static_cast<size_t>(size) - 1;
  const auto next_last = static_cast<size_t>(next_size) - 1;
  const double start_s = chain.ready_s[last];
  const double next_s = chain.ready_s[next_last];
  if (next_s <= start_s) return;
  int64_t tokens = model_.SolveChunkTokensAt(first, started, next_s - start_s);
  tokens -= tokens % options_.token_multiple;
  const int64_t least = std::max(options_.min_chunk_tokens, int64_t{2} * next_size);
  if (tokens < least || rest - tokens < least) return;
  const double seconds = model_.SecondsAt(first, started, tokens);
  const double next_seconds = model_.SecondsAt(second, started + tokens, rest - tokens);
  const double wasted_s =
      size * start_s - chain.sum_s[last] +
      ((next_size - size) * next_s - (chain.sum_s[next_last] - chain.sum_s[last]));
  const double cost = next_s + next_seconds - ask.now_s +
                      ask.price * (size * seconds + next_size * next_seconds + wasted_s);
  if (cost >= best->cost) return;
  *best = {cost, start_s,     start_s + seconds, tokens,
           size, chain_index, next_size,         next_s + next_seconds};
}

}  // namespace skein::scheduler
