#include "scheduler/plan/oracle/exhaustive.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace skein::scheduler {
namespace {

class Search {
 public:
  Search(const LatencyModel& model, int64_t prompt_tokens, int grid)
      : model_(model), prompt_tokens_(prompt_tokens), grid_(grid) {}

  // ready_s[i]: when the set of size index i is free.
  void Run(const std::vector<double>& ready_s) {
    ready_s_ = ready_s;
    From(0, 0, 0);
  }
  double best_s() const { return best_s_; }

 private:
  int64_t TokensAt(int cut) const { return prompt_tokens_ * cut / grid_; }

  // Tokens up to `cut` are done at now_s; the next chunk has at least size index `smallest`.
  void From(int smallest, int cut, double now_s) {
    const int64_t history = TokensAt(cut);
    for (int index = smallest; index < static_cast<int>(ready_s_.size()); ++index) {
      const double start_s = std::max(now_s, ready_s_[static_cast<size_t>(index)]);
      for (int next = cut + 1; next <= grid_; ++next) {
        const int64_t tokens = TokensAt(next) - history;
        if (tokens == 0) continue;
        const double end_s = start_s + model_.SecondsAt(index, history, tokens);
        if (end_s >= best_s_) break;  // longer chunks end even later
        if (next == grid_)
          best_s_ = end_s;
        else
          From(index + 1, next, end_s);
      }
    }
  }

  const LatencyModel& model_;
  const int64_t prompt_tokens_;
  const int grid_;
  std::vector<double> ready_s_;
  double best_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

double ExhaustiveTtft(const LatencyModel& model, const Cluster& cluster,
                      absl::Span<const double> queue_s, int64_t prompt_tokens, int grid) {
  const auto node_size = static_cast<size_t>(cluster.node_size);
  std::vector<std::vector<double>> nodes;
  for (size_t first = 0; first < queue_s.size(); first += node_size) {
    const auto of_node = queue_s.subspan(first, node_size);
    nodes.emplace_back(of_node.begin(), of_node.end());
    std::sort(nodes.back().begin(), nodes.back().end());
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a.back() < b.back(); });
  Search search(model, prompt_tokens, grid);
  for (size_t first = 0; first < nodes.size(); ++first) {
    std::vector<double> ready_s;
    for (const int sp : model.sp_sizes()) {
      const auto size = static_cast<size_t>(sp);
      if (size > queue_s.size()) break;
      if (size <= node_size) {
        ready_s.push_back(nodes[first][size - 1]);
      } else {  // the first node, and the soonest free others
        const size_t others = size / node_size - 1;
        const size_t last = others <= first ? others - 1 : others;
        ready_s.push_back(std::max(nodes[first].back(), nodes[last].back()));
      }
    }
    search.Run(ready_s);
  }
  return search.best_s();
}

}  // namespace skein::scheduler
