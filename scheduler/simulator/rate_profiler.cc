#include "scheduler/simulator/rate_profiler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "scheduler/base/check.h"

namespace skein::scheduler {
namespace {

constexpr double kPrices[] = {0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.9};
constexpr double kSlacks[] = {0, 0.5, 1, 2};

CandidateScore Score(const std::vector<SimRequest>& requests, const PrefillRun& run) {
  std::vector<double> ttft_s = TtftSeconds(requests, run);
  CandidateScore score;
  score.mean_s = std::accumulate(ttft_s.begin(), ttft_s.end(), 0.0) /
                 static_cast<double>(std::max<size_t>(1, ttft_s.size()));
  score.p50_s = Percentile(&ttft_s, 0.5);
  score.p99_s = Percentile(&ttft_s, 0.99);
  return score;
}

struct Context {
  const std::vector<SimRequest>& requests;
  const LatencyModel& model;
  const Cluster& cluster;

  CandidateScore Try(const char* policy, const Tuning& tuning) const {
    const absl::StatusOr<Policy> parsed = Policy::Parse(policy);
    SKEIN_INVARIANT(parsed.ok());
    if (!CheckPolicy(*parsed, model, cluster).ok()) {
      constexpr double kNone = std::numeric_limits<double>::infinity();
      return {kNone, kNone, kNone};
    }
    return Score(requests, RunPolicy(*parsed, requests, model, cluster, tuning));
  }
};

double TuneImprovementRate(const Context& context, double load,
                           std::vector<ImprovementRateTrial>* trials) {
  double best = 0;
  double best_s = std::numeric_limits<double>::infinity();
  for (const double rate : ImprovementRateCandidates()) {
    Tuning tuning;
    tuning.improvement_rates = ImprovementRateTable::Constant(rate);
    const CandidateScore score = context.Try("tetris", tuning);
    trials->push_back({load, rate, score});
    if (score.mean_s >= best_s) continue;
    best_s = score.mean_s;
    best = rate;
  }
  return best;
}

// The best P50 and the best P99 of all others.
CandidateScore Reference(const Context& context, double improvement_rate) {
  Tuning tuning;
  tuning.improvement_rates = ImprovementRateTable::Constant(improvement_rate);
  CandidateScore best = context.Try("tetris", tuning);
  for (const char* policy : {"greedy", "fixed8", "fixed16"}) {
    const CandidateScore score = context.Try(policy, tuning);
    best.p50_s = std::min(best.p50_s, score.p50_s);
    best.p99_s = std::min(best.p99_s, score.p99_s);
  }
  return best;
}

RollingSetting TuneRolling(const Context& context, double load, const CandidateScore& reference) {
  RollingSetting best;
  double least = std::numeric_limits<double>::infinity();
  for (const double price : kPrices) {
    for (const double slack : kSlacks) {
      Tuning tuning;
      tuning.rolling = RollingTable::Constant({load, price, slack});
      const CandidateScore score = context.Try("rolling", tuning);
      double objective = 0;
      for (const double ratio : {score.p50_s / reference.p50_s, score.p99_s / reference.p99_s}) {
        objective += std::log(ratio) + 10 * std::max(0.0, ratio - 1);
      }
      if (objective >= least) continue;
      least = objective;
      best = {load, price, slack};
    }
  }
  return best;
}

}  // namespace

std::vector<double> ImprovementRateCandidates() {
  return {0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75};
}

Profile ProfileLoads(const std::vector<double>& loads, const WorkloadOfLoad& workload,
                     const LatencyModel& model, const Cluster& cluster, bool tune_rolling) {
  Profile profile;
  std::vector<ImprovementRateTable::Row> rates;
  std::vector<RollingSetting> settings;
  for (const double load : loads) {
    const std::vector<SimRequest> requests = workload(load);
    const Context context{requests, model, cluster};
    rates.push_back({load, TuneImprovementRate(context, load, &profile.trials)});
    if (!tune_rolling) continue;
    settings.push_back(
        TuneRolling(context, load, Reference(context, rates.back().improvement_rate)));
  }
  absl::StatusOr<ImprovementRateTable> table = ImprovementRateTable::Make(std::move(rates));
  SKEIN_INVARIANT(table.ok());
  profile.tuning.improvement_rates = *std::move(table);
  if (tune_rolling) {
    absl::StatusOr<RollingTable> rolling = RollingTable::Make(std::move(settings));
    SKEIN_INVARIANT(rolling.ok());
    profile.tuning.rolling = *std::move(rolling);
  }
  return profile;
}

}  // namespace skein::scheduler
