#include "scheduler/plan/latency/fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

constexpr int kMaxTerms = 4;
constexpr double kDependent = 1e-7;  // remainder of a column that the others explain
constexpr double kMaxConstantS = 3600;
constexpr double kMaxTermS = 10;  // per token or per pair of tokens

using Terms = std::array<double, kMaxTerms>;
constexpr std::array<const char*, kMaxTerms> kNames = {"a_s", "b_s_per_token", "d_s_per_token2",
                                                       "c_s_per_token2"};

absl::Status Wrong(int sp, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("sp ", sp, ": ", why));
}

absl::Status CheckSample(const LatencySample& sample) {
  const int sp = sample.sp;
  if (sp < 1 || sp > LatencyModel::kMaxSp || !std::has_single_bit(static_cast<unsigned>(sp))) {
    return Wrong(sp, absl::StrCat("is not a power of two in 1 ... ", LatencyModel::kMaxSp));
  }
  if (sample.chunk_tokens < 1) {
    return Wrong(sp,
                 absl::StrCat("chunk_tokens is ", sample.chunk_tokens, "; it must be positive"));
  }
  if (sample.history_tokens < 0) {
    return Wrong(
        sp, absl::StrCat("history_tokens is ", sample.history_tokens, "; it must not be negative"));
  }
  if (!std::isfinite(sample.seconds) || sample.seconds <= 0) {
    return Wrong(sp,
                 absl::StrCat("seconds is ", sample.seconds, "; it must be finite and positive"));
  }
  return absl::OkStatus();
}

// 1, L, L^2 and C L; without history, the third includes c = 2 d.
Terms TermsOf(const LatencySample& sample) {
  const auto chunk = static_cast<double>(sample.chunk_tokens);
  return {1, chunk, chunk * chunk, chunk * static_cast<double>(sample.history_tokens)};
}

struct Solution {
  Terms x{};           // 0 for terms that are left out
  double error = 0;    // the minimised sum
  int dependent = -1;  // the first column that earlier ones explain; then there is no solution
};

// Minimises sum((terms . x / seconds - 1)^2) over the terms `columns`, by modified Gram-Schmidt on
// columns of unit length.
Solution SolveRelative(const std::vector<LatencySample>& samples,
                       const std::vector<size_t>& columns) {
  Solution solution;
  const size_t rows = samples.size();
  const size_t terms = columns.size();
  std::array<std::vector<double>, kMaxTerms> q;
  std::array<Terms, kMaxTerms> r{};
  Terms scale{};
  Terms target{};
  std::vector<double> rest(rows, 1.0);
  const auto dot = [rows](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < rows; ++i) sum += a[i] * b[i];
    return sum;
  };
  const auto subtract = [rows](double factor, const std::vector<double>& b,
                               std::vector<double>* a) {
    for (size_t i = 0; i < rows; ++i) (*a)[i] -= factor * b[i];
  };
  for (size_t j = 0; j < terms; ++j) {
    q[j].resize(rows);
    for (size_t i = 0; i < rows; ++i) {
      q[j][i] = TermsOf(samples[i])[columns[j]] / samples[i].seconds;
    }
    scale[j] = std::sqrt(dot(q[j], q[j]));
    for (double& value : q[j]) value /= scale[j];
    for (int pass = 0; pass < 2; ++pass) {  // twice is enough for orthogonality to rounding
      for (size_t k = 0; k < j; ++k) {
        const double along = dot(q[k], q[j]);
        r[k][j] += along;
        subtract(along, q[k], &q[j]);
      }
    }
    r[j][j] = std::sqrt(dot(q[j], q[j]));
    if (!(r[j][j] > kDependent)) {
      solution.dependent = static_cast<int>(columns[j]);
      return solution;
    }
    for (double& value : q[j]) value /= r[j][j];
    target[j] = dot(q[j], rest);
    subtract(target[j], q[j], &rest);
  }
  for (size_t j = terms; j-- > 0;) {
    double value = target[j];
    for (size_t k = j + 1; k < terms; ++k) {
      value -= r[j][k] * solution.x[columns[k]] * scale[k];
    }
    solution.x[columns[j]] = value / r[j][j] / scale[j];
  }
  solution.error = dot(rest, rest);
  return solution;
}

// The least error without a negative coefficient. That solution is the unconstrained one over the
// terms that it does not leave out, so the best of all such choices is it.
Solution SolveNonNegative(const std::vector<LatencySample>& samples, size_t terms) {
  Solution best;
  best.error = std::numeric_limits<double>::infinity();
  for (unsigned chosen = 1; chosen < 1U << terms; ++chosen) {
    std::vector<size_t> columns;
    for (size_t j = 0; j < terms; ++j) {
      if ((chosen >> j & 1U) != 0) columns.push_back(j);
    }
    const Solution one = SolveRelative(samples, columns);
    const bool allowed = std::all_of(one.x.begin(), one.x.end(), [](double x) { return x >= 0; });
    if (one.dependent < 0 && allowed && one.error < best.error) best = one;
  }
  return best;
}

absl::Status CheckCoefficients(int sp, const Terms& x) {
  for (size_t j = 0; j < x.size(); ++j) {
    if (std::isfinite(x[j]) && x[j] <= (j == 0 ? kMaxConstantS : kMaxTermS)) continue;
    return Wrong(sp, absl::StrCat(kNames[j], " would be ", x[j],
                                  "; a latency has no such term. Measure more and longer chunks"));
  }
  if (x[1] > 0 || x[2] > 0) return absl::OkStatus();
  return Wrong(sp,
               "b_s_per_token and d_s_per_token2 would be 0: longer chunks did not take longer. "
               "Measure more and longer chunks");
}

absl::StatusOr<SpCoefficients> FitSize(int sp, const std::vector<LatencySample>& samples) {
  std::set<std::pair<int64_t, int64_t>> points;
  for (const auto& sample : samples) points.insert({sample.history_tokens, sample.chunk_tokens});
  const bool history = points.rbegin()->first > 0;
  const size_t terms = history ? 4 : 3;
  if (points.size() < terms) {
    return Wrong(
        sp, absl::StrCat(points.size(), " different (history_tokens, chunk_tokens) pairs; ", terms,
                         " coefficients need at least ", terms));
  }
  std::vector<size_t> all(terms);
  std::iota(all.begin(), all.end(), 0);
  if (const int column = SolveRelative(samples, all).dependent; column >= 0) {
    return Wrong(
        sp, absl::StrCat("the samples do not distinguish ", kNames[static_cast<size_t>(column)],
                         " from the other coefficients; vary the lengths more"));
  }
  const Terms x = SolveNonNegative(samples, terms).x;
  if (absl::Status status = CheckCoefficients(sp, x); !status.ok()) return status;
  return SpCoefficients{x[0], x[1], history ? x[3] : 2 * x[2], x[2]};
}

}  // namespace

absl::StatusOr<LatencyFit> FitLatency(absl::Span<const LatencySample> samples) {
  std::map<int, std::vector<LatencySample>> by_size;
  for (const LatencySample& sample : samples) {
    if (absl::Status status = CheckSample(sample); !status.ok()) return status;
    by_size[sample.sp].push_back(sample);
  }
  if (by_size.empty()) return absl::InvalidArgumentError("there are no samples");
  LatencyFit fit;
  for (const auto& [sp, of_size] : by_size) {
    const absl::StatusOr<SpCoefficients> coefficients = FitSize(sp, of_size);
    if (!coefficients.ok()) return coefficients.status();
    fit.sizes[sp] = *coefficients;
    const auto model = LatencyModel::Make({{sp, *coefficients}});
    if (!model.ok()) return model.status();
    for (const LatencySample& sample : of_size) {
      fit.residuals.push_back(
          {sample, model->Seconds(sp, sample.history_tokens, sample.chunk_tokens)});
      const SampleResidual& residual = fit.residuals.back();
      if (std::abs(residual.Relative()) <= kMaxRelativeError) continue;
      return Wrong(
          sp, absl::StrCat("the fit takes ", residual.predicted_s, " s for ", sample.chunk_tokens,
                           " tokens after ", sample.history_tokens, ", which took ", sample.seconds,
                           " s; these samples do not follow equation 1"));
    }
  }
  return fit;
}

}  // namespace skein::scheduler
