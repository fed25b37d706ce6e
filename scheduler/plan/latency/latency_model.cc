#include "scheduler/plan/latency/latency_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// A double represents token counts exactly up to here.
constexpr double kMaxTokens = 9007199254740992.0;

absl::Status CheckCoefficients(const std::string& name, const SpCoefficients& k) {
  const std::pair<const char*, double> values[] = {{"a_s", k.a_s},
                                                   {"b_s_per_token", k.b_s_per_token},
                                                   {"c_s_per_token2", k.c_s_per_token2},
                                                   {"d_s_per_token2", k.d_s_per_token2}};
  for (const auto& [field, value] : values) {
    if (!std::isfinite(value) || value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, field, " is ", value, "; it must be finite and not negative"));
    }
  }
  if (k.b_s_per_token == 0 && k.d_s_per_token2 == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     "b_s_per_token and d_s_per_token2 are both 0; time must grow with the "
                     "tokens"));
  }
  return absl::OkStatus();
}

// The node size is no power of two everywhere.
int BitFloor(int value) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(value))); }

absl::Status CheckSize(int sp, const SpCoefficients& k) {
  const std::string name = absl::StrCat("sp ", sp, ": ");
  if (sp < 1 || sp > LatencyModel::kMaxSp || !std::has_single_bit(static_cast<unsigned>(sp))) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "is not a power of two in 1 ... ", LatencyModel::kMaxSp));
  }
  return CheckCoefficients(name, k);
}

}  // namespace

absl::StatusOr<LatencyModel> LatencyModel::Make(const std::map<int, SpCoefficients>& sizes,
                                                const std::vector<TensorShape>& tensor) {
  if (sizes.empty()) return absl::InvalidArgumentError("sp: there are no SP sizes");
  LatencyModel model;
  for (const auto& [sp, coefficients] : sizes) {
    if (absl::Status status = CheckSize(sp, coefficients); !status.ok()) return status;
    model.sp_sizes_.push_back(sp);
    model.coefficients_.push_back(coefficients);
  }
  model.tensor_.resize(sizes.size());
  for (const TensorShape& shape : tensor) {
    const std::string name = absl::StrCat("instances ", shape.ranks, ", tp ", shape.tp, ": ");
    if (!model.HasSp(shape.ranks)) {
      return absl::InvalidArgumentError(absl::StrCat(name, "sp has no such size"));
    }
    if (shape.tp < 2 || shape.tp > shape.ranks ||
        !std::has_single_bit(static_cast<unsigned>(shape.tp))) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "tp is not a power of two in 2 ... ", shape.ranks));
    }
    if (absl::Status status = CheckCoefficients(name, shape.coefficients); !status.ok()) {
      return status;
    }
    std::vector<TensorShape>& of_size =
        model.tensor_[static_cast<size_t>(model.IndexOf(shape.ranks))];
    const auto at = std::lower_bound(of_size.begin(), of_size.end(), shape.tp,
                                     [](const TensorShape& one, int tp) { return one.tp < tp; });
    if (at != of_size.end() && at->tp == shape.tp) {
      return absl::InvalidArgumentError(absl::StrCat(name, "occurs twice"));
    }
    of_size.insert(at, shape);
  }
  model.Limit({});
  return model;
}

LatencyModel LatencyModel::Within(const ShapeLimits& limits) const {
  LatencyModel model = *this;
  model.Limit(limits);
  return model;
}

void LatencyModel::Limit(const ShapeLimits& limits) {
  limits_ = limits;
  first_ = coefficients_;
  others_.assign(sp_sizes_.size(), {});
  has_shapes_ = limits.pinned_tp > 1;
  for (size_t at = 0; at < sp_sizes_.size(); ++at) {
    const int pinned = std::min({limits.pinned_tp, BitFloor(limits.tp_max), sp_sizes_[at]});
    for (const TensorShape& shape : tensor_[at]) {
      if (shape.tp == pinned) first_[at] = shape.coefficients;
      if (limits.pinned_tp > 0 || shape.tp > limits.tp_max) continue;
      others_[at].push_back(shape.coefficients);
      has_shapes_ = true;
    }
  }
}

bool LatencyModel::HasSp(int sp) const {
  return std::binary_search(sp_sizes_.begin(), sp_sizes_.end(), sp);
}

int LatencyModel::LargestSizeWithin(int instances) const {
  const auto above = std::upper_bound(sp_sizes_.begin(), sp_sizes_.end(), instances);
  return above == sp_sizes_.begin() ? sp_sizes_.front() : *(above - 1);
}

int LatencyModel::IndexOf(int sp) const {
  const auto it = std::lower_bound(sp_sizes_.begin(), sp_sizes_.end(), sp);
  SKEIN_CHECK_MSG(it != sp_sizes_.end() && *it == sp, "the model has no such SP size");
  return static_cast<int>(it - sp_sizes_.begin());
}

double LatencyModel::SecondsWith(int sp, int tp, int64_t history_tokens,
                                 int64_t chunk_tokens) const {
  const auto at = static_cast<size_t>(IndexOf(sp));
  for (const TensorShape& shape : tensor_[at]) {
    if (shape.tp == tp) return Of(shape.coefficients, history_tokens, chunk_tokens);
  }
  return Of(coefficients_[at], history_tokens, chunk_tokens);
}

int LatencyModel::FastestTp(int sp, int64_t history_tokens, int64_t chunk_tokens,
                            int tp_max) const {
  const auto at = static_cast<size_t>(IndexOf(sp));
  double least = Of(coefficients_[at], history_tokens, chunk_tokens);
  int fastest = 1;
  for (const TensorShape& shape : tensor_[at]) {
    const double seconds = Of(shape.coefficients, history_tokens, chunk_tokens);
    if (seconds >= least || shape.tp > tp_max) continue;
    least = seconds;
    fastest = shape.tp;
  }
  return fastest;
}

int LatencyModel::ChooseTp(int sp, int64_t history_tokens, int64_t chunk_tokens,
                           int tp_possible) const {
  const int tp_max = std::min(tp_possible, BitFloor(limits_.tp_max));
  return limits_.pinned_tp > 0 ? std::min(limits_.pinned_tp, tp_max)
                               : FastestTp(sp, history_tokens, chunk_tokens, tp_max);
}

SpCoefficients LatencyModel::LeastAt(int index) const {
  const auto at = static_cast<size_t>(index);
  SpCoefficients least = first_[at];
  for (const SpCoefficients& k : others_[at]) {
    least.a_s = std::min(least.a_s, k.a_s);
    least.b_s_per_token = std::min(least.b_s_per_token, k.b_s_per_token);
    least.c_s_per_token2 = std::min(least.c_s_per_token2, k.c_s_per_token2);
    least.d_s_per_token2 = std::min(least.d_s_per_token2, k.d_s_per_token2);
  }
  return least;
}

// The time of each shape grows with the tokens, so the longest chunk of the fastest shape is the
// longest of any.
int64_t LatencyModel::SolveChunkTokensAt(int index, int64_t history_tokens, double budget_s) const {
  const auto at = static_cast<size_t>(index);
  int64_t tokens = Solve(first_[at], history_tokens, budget_s);
  for (const SpCoefficients& k : others_[at]) {
    tokens = std::max(tokens, Solve(k, history_tokens, budget_s));
  }
  return tokens;
}

int64_t LatencyModel::Solve(const SpCoefficients& k, int64_t history_tokens, double budget_s) {
  const double gap = budget_s - k.a_s;
  if (!(gap > 0)) return 0;
  const double slope = k.b_s_per_token + k.c_s_per_token2 * static_cast<double>(history_tokens);
  // The form of the root that does not subtract nearly equal numbers.
  const double root = 2 * gap / (slope + std::sqrt(slope * slope + 4 * k.d_s_per_token2 * gap));
  if (!(root < kMaxTokens)) return static_cast<int64_t>(kMaxTokens);
  auto tokens = static_cast<int64_t>(root);
  if (Of(k, history_tokens, tokens + 1) <= budget_s) return tokens + 1;
  while (tokens > 0 && Of(k, history_tokens, tokens) > budget_s) --tokens;
  return tokens;
}

}  // namespace skein::scheduler
