#include "scheduler/plan/latency/builtin_models.h"

#include <map>
#include <utility>
#include <vector>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

std::vector<LatencySample> Table1() {
  struct Row {
    int sp;
    std::vector<double> seconds;  // at 4k, 8k, 16k, ...
  };
  const Row rows[] = {
      {1, {0.28, 0.57, 1.29, 3.22, 9.05, 29.20}},  // 256k: out of memory
      {2, {0.16, 0.31, 0.69, 1.67, 4.61, 14.30, 50.07}},
      {4, {0.13, 0.20, 0.39, 0.92, 2.43, 7.32, 24.77}},
      {8, {0.21, 0.24, 0.31, 0.58, 1.37, 3.96, 12.81}},
      {16, {0.39, 0.43, 0.46, 0.53, 0.96, 2.31, 7.02}},
  };
  std::vector<LatencySample> samples;
  for (const Row& row : rows) {
    int64_t tokens = 4096;
    for (const double seconds : row.seconds) {
      samples.push_back({row.sp, 0, tokens, seconds});
      tokens *= 2;
    }
  }
  return samples;
}

LatencyModel Fitted() {
  const auto fit = FitLatency(Llama3_8bA100Samples());
  SKEIN_CHECK(fit.ok());
  auto model = LatencyModel::Make(fit->sizes);
  SKEIN_CHECK(model.ok());
  return *std::move(model);
}

struct Shape {
  double layers;
  double hidden;
  double weights;  // of the layers' products
};
constexpr Shape k8b = {32, 4096, 6.98e9};
constexpr Shape k70b = {80, 8192, 68.45e9};

LatencyModel Llama3_70bFrom(const LatencyModel& of_8b) {
  constexpr double kTp = 4;
  constexpr double kNvlink = 300e9;   // bytes a second, one direction, of an A100
  constexpr double kLinkShare = 0.7;  // that all-reduces reach
  // On each device: products of a token, attention of a pair of tokens.
  constexpr double kProducts = k70b.weights / k8b.weights / kTp;
  constexpr double kPair = k70b.layers * k70b.hidden / (k8b.layers * k8b.hidden) / kTp;
  // Two all-reduces a layer; in each a device sends 2 (TP - 1) / TP times the token's 2 bytes a
  // value.
  constexpr double kBytes = k70b.layers * 2 * 2 * (kTp - 1) / kTp * k70b.hidden * 2;
  // What does not depend on the tokens comes anew in each layer.
  constexpr double kConstant = k70b.layers / k8b.layers;
  std::map<int, SpCoefficients> sizes;
  for (const int sp : of_8b.sp_sizes()) {
    const SpCoefficients& from = of_8b.CoefficientsAt(of_8b.IndexOf(sp));
    sizes[sp] = {kConstant * from.a_s,
                 kProducts * from.b_s_per_token + kBytes / (kNvlink * kLinkShare) / sp,
                 kPair * from.c_s_per_token2, kPair * from.d_s_per_token2};
  }
  auto model = LatencyModel::Make(sizes);
  SKEIN_CHECK(model.ok());
  return *std::move(model);
}

}  // namespace

absl::Span<const LatencySample> Llama3_8bA100Samples() {
  static const auto* const kSamples = new std::vector<LatencySample>(Table1());
  return *kSamples;
}

const LatencyModel& Llama3_8bA100() {
  static const auto* const kModel = new LatencyModel(Fitted());
  return *kModel;
}

const LatencyModel& Llama3_70bA100Tp4() {
  static const auto* const kModel = new LatencyModel(Llama3_70bFrom(Llama3_8bA100()));
  return *kModel;
}

}  // namespace skein::scheduler
