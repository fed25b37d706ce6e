#include "scheduler/simulator/offline/weight_fetch.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace skein::scheduler {
namespace {

constexpr int64_t kSteps = 4;  // the first is not counted: its slots begin empty
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Rank {
  // The step that it computes. `layer` is the layer's number, counted through all steps.
  int64_t layer = 0;
  bool is_attention = true;  // or the feed-forward network of `layer`
  bool is_waiting = false;   // for the weights
  double ends_s = 0;         // when not waiting
  // Its reads.
  int64_t begun = 0;  // how many have begun, counted through all steps
  bool is_reading = false;
  int64_t read_layer = 0;  // counted through all steps
  double left_s = 0;       // of the read, at the full rate
  int64_t used_slots = 0;
  std::vector<bool> has_read;  // [layers of all steps]
  std::vector<int64_t> order;  // of the layers of one step that it reads
  double first_end_s = 0, last_end_s = 0;
};

class Simulation {
 public:
  explicit Simulation(const FetchedStep& step)
      : step_(step),
        all_layers_(step.layers * kSteps),
        slots_(step.slots > 0 ? step.slots : step.ranks - 1) {
    for (int64_t r = 0; r < step.ranks; ++r) {
      Rank rank;
      rank.has_read.resize(static_cast<size_t>(all_layers_));
      rank.order = OrderOf(r);
      rank.ends_s = step.outside_s + step.attention_s;
      ranks_.push_back(std::move(rank));
    }
    readers_.resize(ranks_.size());
  }

  double Run() {
    for (int64_t r = 0; r < step_.ranks; ++r) BeginRead(r);
    while (Advance()) {
    }
    double seconds = 0;
    for (const Rank& rank : ranks_) seconds += rank.last_end_s - rank.first_end_s;
    return seconds / static_cast<double>(step_.ranks * (kSteps - 1));
  }

 private:
  int64_t Owner(int64_t layer) const { return layer % step_.layers % step_.ranks; }

  std::vector<int64_t> OrderOf(int64_t rank) const {
    std::vector<int64_t> order;
    for (int64_t cycle = 0; cycle < step_.layers; cycle += step_.ranks) {
      for (int64_t k = 0; k < step_.ranks; ++k) {
        const int64_t at = step_.peak_shifting ? (rank + k) % step_.ranks : k;
        if (at != rank && cycle + at < step_.layers) order.push_back(cycle + at);
      }
    }
    return order;
  }

  void BeginRead(int64_t r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const auto of_step = static_cast<int64_t>(rank.order.size());
    if (rank.is_reading || of_step == 0 || rank.begun == of_step * kSteps) return;
    if (rank.used_slots == slots_) return;
    rank.read_layer =
        rank.begun / of_step * step_.layers + rank.order[static_cast<size_t>(rank.begun % of_step)];
    ++rank.begun;
    ++rank.used_slots;
    rank.is_reading = true;
    rank.left_s = step_.fetch_s;
    ++readers_[static_cast<size_t>(Owner(rank.read_layer))];
  }

  double ReadersOf(const Rank& rank) const {
    return static_cast<double>(readers_[static_cast<size_t>(Owner(rank.read_layer))]);
  }

  // To the next end of a read or a computation. False: all steps have ended.
  bool Advance() {
    double next_s = kNever;
    for (const Rank& rank : ranks_) {
      if (rank.layer < all_layers_ && !rank.is_waiting) next_s = std::min(next_s, rank.ends_s);
      if (rank.is_reading) next_s = std::min(next_s, now_s_ + rank.left_s * ReadersOf(rank));
    }
    if (next_s == kNever) return false;
    const double passed_s = std::max(0.0, next_s - now_s_);
    std::vector<int64_t>& read = ended_;
    read.clear();
    for (int64_t r = 0; r < step_.ranks; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      if (!rank.is_reading) continue;
      rank.left_s -= passed_s / ReadersOf(rank);
      if (rank.left_s <= step_.fetch_s * 1e-9) read.push_back(r);
    }
    now_s_ = std::max(now_s_, next_s);
    for (const int64_t r : read) EndRead(r);
    for (int64_t r = 0; r < step_.ranks; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      if (rank.layer < all_layers_ && !rank.is_waiting && rank.ends_s <= now_s_) EndPhase(r);
    }
    return true;
  }

  void EndRead(int64_t r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    --readers_[static_cast<size_t>(Owner(rank.read_layer))];
    rank.is_reading = false;
    rank.has_read[static_cast<size_t>(rank.read_layer)] = true;
    if (rank.is_waiting && rank.read_layer == rank.layer) BeginFeedForward(&rank);
    BeginRead(r);
  }

  void BeginFeedForward(Rank* rank) {
    rank->is_waiting = false;
    rank->is_attention = false;
    rank->ends_s = now_s_ + step_.feed_forward_s;
  }

  void EndPhase(int64_t r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const bool is_own = Owner(rank.layer) == r;
    if (rank.is_attention) {
      rank.is_waiting = !is_own && !rank.has_read[static_cast<size_t>(rank.layer)];
      if (!rank.is_waiting) BeginFeedForward(&rank);
      return;
    }
    if (!is_own) --rank.used_slots;
    rank.is_attention = true;
    ++rank.layer;
    rank.ends_s = now_s_ + step_.attention_s;
    if (rank.layer % step_.layers == 0) {
      if (rank.layer == step_.layers) rank.first_end_s = now_s_;
      rank.last_end_s = now_s_;
      rank.ends_s += step_.outside_s;
    }
    BeginRead(r);
  }

  const FetchedStep step_;
  const int64_t all_layers_;
  const int64_t slots_;
  std::vector<Rank> ranks_;
  std::vector<int64_t> readers_;  // [owner]
  std::vector<int64_t> ended_;    // scratch of Advance
  double now_s_ = 0;
};

}  // namespace

double FetchedStepSeconds(const FetchedStep& step) {
  if (step.ranks == 1 || step.fetch_s == 0) return step.FullSeconds();
  return std::max(step.FullSeconds(), Simulation(step).Run());
}

}  // namespace skein::scheduler
