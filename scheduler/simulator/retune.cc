#include "scheduler/simulator/retune.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/simulator/rate_profiler.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kRequestsOfTrial = 6000;  // as skeinctl profile-rate
constexpr uint64_t kSeed = 17;  // the same requests for every load, rate and time of tuning

}  // namespace

std::vector<double> RetuneLoads(std::vector<double> seen) {
  if (seen.size() <= kRetuneRowsMax) return seen;
  std::vector<double> loads;
  for (size_t row = 0; row < kRetuneRowsMax; ++row) {
    loads.push_back(seen[row * (seen.size() - 1) / (kRetuneRowsMax - 1)]);
  }
  return loads;
}

absl::StatusOr<ImprovementRateTable> RetuneRates(const PromptHistory& history,
                                                 const LatencyModel& model, const Cluster& cluster,
                                                 const std::function<bool()>& stopped) {
  if (history.prompts() < kRetunePromptsMin) {
    return absl::FailedPreconditionError(
        absl::StrCat(history.prompts(), " prompts; ", kRetunePromptsMin, " are needed"));
  }
  const std::vector<double> loads = RetuneLoads(history.Loads());
  if (loads.empty()) {
    return absl::FailedPreconditionError(
        "no 30 s of arrivals have passed, so the load is not known");
  }
  std::vector<SimRequest> sample;
  sample.reserve(history.lengths().size());
  for (const int64_t tokens : history.lengths()) sample.push_back({0, tokens, 1});
  const auto workload = [&sample](double load, int /*round*/) {
    return ResampleWorkload(
        sample, {.requests_per_s = load, .requests = kRequestsOfTrial, .burst = 1, .seed = kSeed});
  };
  std::vector<ImprovementRateTable::Row> rows;
  for (const double load : loads) {
    if (stopped()) return absl::CancelledError("stopped");
    const Profile profile = ProfileLoads({load}, workload, model, cluster, /*tune_rolling=*/false);
    rows.push_back(profile.tuning.improvement_rates.rows().front());
  }
  return ImprovementRateTable::Make(std::move(rows));
}

double LargestChange(const ImprovementRateTable& before, const ImprovementRateTable& after) {
  double most = 0;
  for (const ImprovementRateTable* table : {&before, &after}) {
    for (const auto& row : table->rows()) {
      most = std::max(
          most, std::abs(after.RateAt(row.requests_per_s) - before.RateAt(row.requests_per_s)));
    }
  }
  return most;
}

}  // namespace skein::scheduler
