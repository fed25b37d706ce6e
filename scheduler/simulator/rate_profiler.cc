#include "scheduler/simulator/rate_profiler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

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
    SKEIN_CHECK(parsed.ok());
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

// The same load several times, so that the choice does not depend on one sample.
using Rounds = std::vector<Context>;
using Scores = std::vector<CandidateScore>;  // [rounds]

Scores TryAll(const Rounds& rounds, const char* policy, const Tuning& tuning) {
  Scores scores;
  for (const Context& context : rounds) scores.push_back(context.Try(policy, tuning));
  return scores;
}

// The upper end of the one-sided 95 % confidence interval of the mean (Student's t), at least 0.
double UpperExcess(const std::vector<double>& logs) {
  constexpr double kT[] = {0, 0, 6.314, 2.920, 2.353, 2.132};  // [rounds]
  static_assert(std::size(kT) == kRounds + 1);
  const auto count = static_cast<double>(logs.size());
  const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / count;
  double squares = 0;
  for (const double log : logs) squares += (log - mean) * (log - mean);
  const double error = logs.size() < 2 ? 0 : std::sqrt(squares / (count - 1) / count);
  return std::max(0.0, mean + kT[logs.size()] * error);
}

std::vector<double> Logs(const Scores& scores, const Scores& over, double CandidateScore::*field) {
  std::vector<double> logs;
  for (size_t r = 0; r < scores.size(); ++r) {
    logs.push_back(std::log(scores[r].*field / (over[r].*field)));
  }
  return logs;
}

struct Baseline {
  const char* policy;
  CommitMode mode;
  Scores scores;
};

// Less is better: first the possible excess over others, then the gain over Tetris.
using Rank = std::pair<double, double>;

// On average over the rounds, neither percentile exceeds Tetris's.
bool NotAbove(const Scores& scores, const Scores& tetris) {
  for (const auto field : {&CandidateScore::p50_s, &CandidateScore::p99_s}) {
    const std::vector<double> logs = Logs(scores, tetris, field);
    if (std::accumulate(logs.begin(), logs.end(), 0.0) > 0) return false;
  }
  return true;
}

// `baselines` starts with Tetris.
Rank RankOf(const Scores& scores, const std::vector<Baseline>& baselines) {
  double over_tetris = 0;
  double over_all = 0;
  double gain = 0;
  for (const auto& [field, weight] :
       {std::pair(&CandidateScore::p50_s, 1.0), std::pair(&CandidateScore::p99_s, 2.0)}) {
    for (const Baseline& baseline : baselines) {
      const std::vector<double> logs = Logs(scores, baseline.scores, field);
      const double excess = UpperExcess(logs);
      over_all = std::max(over_all, excess);
      if (&baseline != &baselines.front()) continue;
      over_tetris = std::max(over_tetris, excess);
      gain += weight * std::accumulate(logs.begin(), logs.end(), 0.0);
    }
  }
  return {over_tetris + over_all, gain};
}

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

struct Coordinate {
  double RollingTuning::*field;
  std::vector<double> values;
};

// Calm times are fractions of Tetris's 99th percentile.
std::vector<Coordinate> Coordinates(const Scores& tetris) {
  double p99_s = 0;
  for (const CandidateScore& score : tetris) {
    p99_s += score.p99_s / static_cast<double>(tetris.size());
  }
  std::vector<double> calm_s = {0};
  for (const double share : {0.6, 0.8, 0.9, 0.95, 1.0, 1.1}) calm_s.push_back(share * p99_s);
  return {{&RollingTuning::price, {0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8}},
          {&RollingTuning::calm_s, calm_s},
          {&RollingTuning::waiting_weight, {2, 4, 8, 16, 32, 64}},
          {&RollingTuning::slack, {0, 1, 2, 4, 8}},
          {&RollingTuning::stretch, {1, 1.5, 2, 3}}};
}

// The best setting so far, as a starting point; and the best that does not exceed Tetris, as the
// result.
class Search {
 public:
  Search(const Rounds& rounds, const std::vector<Baseline>& baselines)
      : rounds_(rounds), baselines_(baselines) {}

  void Try(const RollingTuning& tuning) {
    Tuning with;
    with.rolling = RollingTable::Constant(tuning);
    const CandidateScore first = rounds_.front().Try("rolling", with);
    if (!scores_.empty() && Hopeless(first)) return;
    Scores scores = {first};
    for (size_t r = 1; r < rounds_.size(); ++r) scores.push_back(rounds_[r].Try("rolling", with));
    Offer(tuning, std::move(scores));
  }
  void Offer(const RollingTuning& tuning, Scores scores) {
    const Rank rank = RankOf(scores, baselines_);
    if (rank < taken_rank_ && NotAbove(scores, baselines_.front().scores)) {
      taken_ = tuning;
      taken_rank_ = rank;
    }
    if (!scores_.empty() && rank >= rank_) return;
    best_ = tuning;
    rank_ = rank;
    scores_ = std::move(scores);
  }
  const RollingTuning& best() const { return best_; }
  const RollingTuning& taken() const { return taken_; }

 private:
  // The first round suffices to reject a setting that is clearly worse in both percentiles.
  bool Hopeless(const CandidateScore& first) const {
    constexpr double kClearly = 1.03;
    return first.p50_s > kClearly * scores_.front().p50_s &&
           first.p99_s > kClearly * scores_.front().p99_s;
  }

  const Rounds& rounds_;
  const std::vector<Baseline>& baselines_;
  RollingTuning best_;
  Rank rank_;
  Scores scores_;  // of best_
  RollingTuning taken_;
  Rank taken_rank_ = {std::numeric_limits<double>::infinity(), 0};
};

RollingTuning TuneRolling(const Rounds& rounds, double improvement_rate) {
  const std::vector<Baseline> baselines = TryBaselines(rounds, improvement_rate);
  const std::vector<Coordinate> coordinates = Coordinates(baselines.front().scores);
  Search search(rounds, baselines);
  search.Try({});
  for (int pass = 0; pass < 2; ++pass) {
    for (const Coordinate& coordinate : coordinates) {
      const RollingTuning from = search.best();
      for (const double value : coordinate.values) {
        RollingTuning tuning = from;
        tuning.*coordinate.field = value;
        if (tuning != from) search.Try(tuning);
      }
    }
  }
  for (const Baseline& baseline : baselines) {
    RollingTuning tuning = search.best();
    tuning.commit = baseline.mode;
    search.Offer(tuning, baseline.scores);
  }
  return search.taken();
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
    settings.push_back({load, TuneRolling(rounds, rates.back().improvement_rate)});
  }
  absl::StatusOr<ImprovementRateTable> table = ImprovementRateTable::Make(std::move(rates));
  SKEIN_CHECK(table.ok());
  profile.tuning.improvement_rates = *std::move(table);
  if (tune_rolling) {
    absl::StatusOr<RollingTable> rolling = RollingTable::Make(std::move(settings));
    SKEIN_CHECK(rolling.ok());
    profile.tuning.rolling = *std::move(rolling);
  }
  return profile;
}

}  // namespace skein::scheduler
