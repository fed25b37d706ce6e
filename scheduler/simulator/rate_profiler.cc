#include "scheduler/simulator/rate_profiler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "scheduler/base/check.h"

namespace skein::scheduler {
namespace {

constexpr double kPrices[] = {0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.9};
constexpr double kSlacks[] = {0, 0.5, 1, 2, 4};
constexpr int kRounds = 5;

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

// The same load several times, so that what is chosen is not one sample's luck.
using Rounds = std::vector<Context>;
using Scores = std::vector<CandidateScore>;  // [rounds]

Scores TryAll(const Rounds& rounds, const char* policy, const Tuning& tuning) {
  Scores scores;
  for (const Context& context : rounds) scores.push_back(context.Try(policy, tuning));
  return scores;
}

// Less is better. First, by how much it is worse than the best P50 or the best P99 of all others in
// the round where that is most; of those that are worse in none, the least P50 x P99.
std::pair<double, double> Rank(const Scores& scores, const Scores& reference) {
  double worst = 1;
  double product = 1;
  for (size_t r = 0; r < scores.size(); ++r) {
    const double p50 = scores[r].p50_s / reference[r].p50_s;
    const double p99 = scores[r].p99_s / reference[r].p99_s;
    worst = std::max({worst, p50, p99});
    product *= p50 * p99;
  }
  return {worst, product};
}

struct Baseline {
  const char* policy;
  CommitMode mode;
  Scores scores;
};

std::vector<Baseline> TryBaselines(const Rounds& rounds, double improvement_rate) {
  using Kind = CommitMode::Kind;
  std::vector<Baseline> baselines = {{"tetris", {Kind::kTetris, improvement_rate, 0}, {}},
                                     {"single", {Kind::kSingle, improvement_rate, 0}, {}},
                                     {"greedy", {Kind::kSingle, 0, 0}, {}},
                                     {"fixed8", {Kind::kFixed, 0, 8}, {}},
                                     {"fixed16", {Kind::kFixed, 0, 16}, {}}};
  Tuning tuning;
  tuning.improvement_rates = ImprovementRateTable::Constant(improvement_rate);
  for (Baseline& baseline : baselines) {
    baseline.scores = TryAll(rounds, baseline.policy, tuning);
  }
  return baselines;
}

// Starts from the best baseline's own mode, in which the rolling planner does exactly as it does,
// and takes a rolling setting only if that ranks better.
RollingSetting TuneRolling(const Rounds& rounds, double load, double improvement_rate) {
  const std::vector<Baseline> baselines = TryBaselines(rounds, improvement_rate);
  Scores reference = baselines.front().scores;
  for (const Baseline& baseline : baselines) {
    for (size_t r = 0; r < rounds.size(); ++r) {
      reference[r].p50_s = std::min(reference[r].p50_s, baseline.scores[r].p50_s);
      reference[r].p99_s = std::min(reference[r].p99_s, baseline.scores[r].p99_s);
    }
  }
  RollingSetting best;
  std::pair<double, double> least(std::numeric_limits<double>::infinity(), 0);
  const auto consider = [&](const RollingSetting& setting, const Scores& scores) {
    const std::pair<double, double> rank = Rank(scores, reference);
    if (rank >= least) return;
    least = rank;
    best = setting;
  };
  for (const Baseline& baseline : baselines) {
    consider({load, 0, 0, baseline.mode}, baseline.scores);
  }
  for (const double price : kPrices) {
    for (const double slack : kSlacks) {
      Tuning tuning;
      tuning.rolling = RollingTable::Constant({load, price, slack});
      consider({load, price, slack}, TryAll(rounds, "rolling", tuning));
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
    std::vector<std::vector<SimRequest>> requests;
    for (int r = 0; r < (tune_rolling ? kRounds : 1); ++r) requests.push_back(workload(load, r));
    Rounds rounds;
    for (const auto& of_round : requests) rounds.push_back({of_round, model, cluster});
    rates.push_back({load, TuneImprovementRate(rounds.front(), load, &profile.trials)});
    if (!tune_rolling) continue;
    settings.push_back(TuneRolling(rounds, load, rates.back().improvement_rate));
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
