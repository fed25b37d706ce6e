#include "scheduler/plan/latency/builtin_models.h"

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

}  // namespace

absl::Span<const LatencySample> Llama3_8bA100Samples() {
  static const auto* const kSamples = new std::vector<LatencySample>(Table1());
  return *kSamples;
}

const LatencyModel& Llama3_8bA100() {
  static const auto* const kModel = new LatencyModel(Fitted());
  return *kModel;
}

}  // namespace skein::scheduler
