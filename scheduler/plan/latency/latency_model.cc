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

absl::Status CheckSize(int sp, const SpCoefficients& k) {
  const std::string name = absl::StrCat("sp ", sp, ": ");
  if (sp < 1 || sp > LatencyModel::kMaxSp || !std::has_single_bit(static_cast<unsigned>(sp))) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "is not a power of two in 1 ... ", LatencyModel::kMaxSp));
  }
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

}  // namespace

absl::StatusOr<LatencyModel> LatencyModel::Make(const std::map<int, SpCoefficients>& sizes) {
  if (sizes.empty()) return absl::InvalidArgumentError("sp: there are no SP sizes");
  LatencyModel model;
  for (const auto& [sp, coefficients] : sizes) {
    if (absl::Status status = CheckSize(sp, coefficients); !status.ok()) return status;
    model.sp_sizes_.push_back(sp);
    model.coefficients_.push_back(coefficients);
  }
  return model;
}

bool LatencyModel::HasSp(int sp) const {
  return std::binary_search(sp_sizes_.begin(), sp_sizes_.end(), sp);
}

int LatencyModel::IndexOf(int sp) const {
  const auto it = std::lower_bound(sp_sizes_.begin(), sp_sizes_.end(), sp);
  SKEIN_CHECK_MSG(it != sp_sizes_.end() && *it == sp, "the model has no such SP size");
  return static_cast<int>(it - sp_sizes_.begin());
}

int64_t LatencyModel::SolveChunkTokensAt(int index, int64_t history_tokens, double budget_s) const {
  const SpCoefficients& k = coefficients_[static_cast<size_t>(index)];
  const double gap = budget_s - k.a_s;
  if (!(gap > 0)) return 0;
  const double slope = k.b_s_per_token + k.c_s_per_token2 * static_cast<double>(history_tokens);
  // The form of the root that does not subtract nearly equal numbers.
  const double root = 2 * gap / (slope + std::sqrt(slope * slope + 4 * k.d_s_per_token2 * gap));
  if (!(root < kMaxTokens)) return static_cast<int64_t>(kMaxTokens);
  auto tokens = static_cast<int64_t>(root);
  if (SecondsAt(index, history_tokens, tokens + 1) <= budget_s) return tokens + 1;
  while (tokens > 0 && SecondsAt(index, history_tokens, tokens) > budget_s) --tokens;
  return tokens;
}

}  // namespace skein::scheduler
