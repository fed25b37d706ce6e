#include "scheduler/simulator/formations/prefill_shapes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/latency/fit.h"

namespace skein::scheduler {
namespace {

constexpr double kRowBytes = 2;  // bf16
constexpr double kSumBytes = 4;  // f32

double Double(int64_t value) { return static_cast<double>(value); }

// Weights of a layer.
struct LayerCounts {
  explicit LayerCounts(const StepProfile::Model& m)
      : query(Double(m.heads * m.head_dim)),
        key_value(Double(2 * m.kv_heads * m.head_dim)),
        hidden(Double(m.hidden)),
        projections(hidden * (2 * query + key_value)),
        feed_forward(3 * hidden * Double(m.intermediate)) {}

  double query;  // values of a row
  double key_value;
  double hidden;
  double projections;  // q, k, v and o
  double feed_forward;
};

double ProductSeconds(const StepProfile& p, double weights, double rows, double tp) {
  const double compute_s = 2 * weights * rows / (p.peaks.flops_per_s * p.fitted.compute_share);
  const double read_s =
      weights * p.shape.bytes_per_weight / tp / (p.peaks.hbm_bytes_per_s * p.fitted.hbm_share);
  return std::max(compute_s, read_s);
}

double ExchangeSeconds(const StepProfile& p, const PrefillDerivation& derivation, double rows,
                       double tp) {
  const LayerCounts layer(p.shape);
  double exchanges = 2;
  double bytes = layer.hidden * (kRowBytes + kSumBytes);  // of a row of each other rank
  if (derivation.shares_projections) {
    exchanges += 4;
    bytes += layer.hidden * (kRowBytes + kSumBytes) +
             (layer.query + layer.key_value) / tp * kSumBytes + layer.query / tp * kRowBytes;
  }
  const double link = p.peaks.link_bytes_per_s * p.fitted.link_share;
  return exchanges * derivation.exchange_s + (tp - 1) * rows * bytes / link;
}

}  // namespace

double PrefillSeconds(const StepProfile& profile, const PrefillDerivation& derivation, int ranks,
                      int tp, int64_t history, int64_t tokens) {
  const StepProfile::Model& m = profile.shape;
  const LayerCounts layer(m);
  const double rows = Double((tokens + ranks - 1) / ranks);
  const double projections_tp = derivation.shares_projections ? tp : 1;
  const double products_s = ProductSeconds(profile, layer.feed_forward, rows, tp) +
                            ProductSeconds(profile, layer.projections, rows, projections_tp);
  const double pairs = Double(tokens) * (Double(history) + Double(tokens + 1) / 2);
  const double attention_s = 4 * layer.query * pairs / ranks /
                             (profile.peaks.attention_flops_per_s * profile.fitted.attention_share);
  const double ring_s = (ranks - 1) * derivation.exchange_s;
  const double exchanges_s = tp == 1 ? 0 : ExchangeSeconds(profile, derivation, rows, tp);
  const double head_s = ProductSeconds(profile, layer.hidden * Double(m.vocabulary), 1, 1);
  return Double(m.layers) * (products_s + attention_s + ring_s + exchanges_s) + head_s;
}

absl::StatusOr<DerivedLatency> DeriveLatency(const StepProfile& profile,
                                             const PrefillDerivation& derivation, int ranks_max) {
  constexpr int64_t kShortest = 64;
  constexpr int64_t kLongest = int64_t{1} << 17;
  std::map<int, SpCoefficients> sizes;
  std::vector<TensorShape> tensor;
  TensorShape worst;
  double worst_error = -1;
  int64_t worst_tokens = 0;
  for (int ranks = 1; ranks <= ranks_max; ranks *= 2) {
    for (int tp = 1; tp <= ranks; tp *= 2) {
      std::vector<LatencySample> samples;
      for (int64_t tokens = kShortest; tokens <= kLongest; tokens *= 2) {
        samples.push_back(
            {ranks, 0, tokens, PrefillSeconds(profile, derivation, ranks, tp, 0, tokens)});
      }
      const auto fit = FitLatency(samples);
      if (!fit.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("instances ", ranks, ", tp ", tp, ": ",
                                                       std::string(fit.status().message())));
      }
      const TensorShape shape{ranks, tp, fit->sizes.at(ranks)};
      if (tp == 1) sizes[ranks] = shape.coefficients;
      if (tp > 1) tensor.push_back(shape);
      for (size_t i = 0; i < fit->residuals.size(); ++i) {  // in the order of the samples
        const double error = std::abs(fit->residuals[i].Relative());
        if (error <= worst_error) continue;
        worst_error = error;
        worst = shape;
        worst_tokens = kShortest << i;
      }
    }
  }
  auto latency = LatencyModel::Make(sizes, tensor);
  if (!latency.ok()) return latency.status();
  return DerivedLatency{*std::move(latency), worst_error, worst, worst_tokens};
}

}  // namespace skein::scheduler
