#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/formations/flying_loads.h"
#include "bench/formations/flying_tables.h"
#include "bench/formations/tables.h"

namespace skein::bench {
namespace {

using scheduler::AggregatedOptions;
using scheduler::AggregatedResult;
using scheduler::GroupRequest;
using scheduler::PhasedLoad;
using scheduler::Switch;
using scheduler::SwitchDecision;
using scheduler::TimeUs;

struct Ratios {  // of auto to the better static layout
  double burst_ttft = 0, quiet_ttft = 0, between_ttft = 0, peak = 0, between_tpot = 0, switches = 0;
  double gap_s = 0;
};

struct Load {
  std::vector<GroupRequest> bursts, quiet;
  AggregatedResult dp, tp, tp_quiet;
};

Load Prepare(uint64_t seed) {
  Load load = {
      GeneratePhasedLoad(BurstLoad(seed)), GeneratePhasedLoad(QuietLoad(seed)), {}, {}, {}};
  load.dp = Run("dp", Llama70b(), FlyingOptions(), load.bursts);
  load.tp = Run("tp", Llama70b(), FlyingOptions(), load.bursts);
  load.tp_quiet = Run("tp", Llama70b(), FlyingOptions(), load.quiet);
  return load;
}

Ratios Compare(const char* policy, const AggregatedOptions& options, const Load& load) {
  const AggregatedResult own = Run(policy, Llama70b(), options, load.bursts);
  const AggregatedResult quiet = Run(policy, Llama70b(), options, load.quiet);
  return {own.burst.ttft_mean_s / load.dp.burst.ttft_mean_s,
          quiet.quiet.ttft_mean_s / load.tp_quiet.quiet.ttft_mean_s,
          own.quiet.ttft_mean_s / load.tp.quiet.ttft_mean_s,
          own.peak_output_per_s / load.dp.peak_output_per_s,
          own.quiet.tpot_mean_s / load.tp.quiet.tpot_mean_s,
          static_cast<double>(own.switches.binds + own.switches.releases + own.switches.others),
          own.all.gap_max_s};
}

void PrintMean(const std::vector<Ratios>& all, double Ratios::*field, bool low_is_worse) {
  std::vector<double> values;
  values.reserve(all.size());
  for (const Ratios& one : all) values.push_back(one.*field);
  bench::PrintMean(std::move(values), low_is_worse);
}

void PrintSetting(const std::string& name, const char* policy, const AggregatedOptions& options,
                  const std::vector<Load>& loads) {
  std::vector<Ratios> all;
  all.reserve(loads.size());
  for (const Load& load : loads) all.push_back(Compare(policy, options, load));
  std::printf("| %s |", name.c_str());
  PrintMean(all, &Ratios::burst_ttft, false);
  PrintMean(all, &Ratios::quiet_ttft, false);
  PrintMean(all, &Ratios::between_ttft, false);
  PrintMean(all, &Ratios::peak, true);
  PrintMean(all, &Ratios::between_tpot, false);
  PrintMean(all, &Ratios::switches, false);
  PrintMean(all, &Ratios::gap_s, false);
  std::printf("\n");
}

void PrintHeading(const char* title) {
  std::printf(
      "\n### %s\n\nMean over the seeds, in brackets the worst but a tenth of them.\n\n"
      "| %s | burst TTFT over DP's | quiet TTFT over TP's, without bursts | the same between "
      "bursts "
      "| peak output over DP's | TPOT between bursts over TP's | switches | longest gap s |\n"
      "|---|---|---|---|---|---|---|---|\n",
      title, "setting");
}

std::vector<Load> PrepareAll(uint64_t first, uint64_t last) {
  std::vector<Load> loads;
  for (uint64_t seed = first; seed <= last; ++seed) loads.push_back(Prepare(seed));
  return loads;
}

AggregatedOptions With(double bind, double release, double tokens,
                       std::optional<Switch> how = std::nullopt) {
  AggregatedOptions options = FlyingOptions();
  options.driver.policy.bind_sequences = bind;
  options.driver.policy.release_sequences = release;
  options.driver.policy.release_waiting_tokens = tokens;
  options.driver.release = how;
  return options;
}

// Seconds from the start of the burst that this is in, or that comes next.
double FromBurst(const PhasedLoad& load, TimeUs at_us) {
  const double from_start =
      std::fmod(static_cast<double>(at_us) * 1e-6, load.quiet_s + load.burst_s);
  return from_start - load.quiet_s;
}

// "bind 2.5 s into burst 3", "release 80.0 s before burst 4".
std::string Told(const PhasedLoad& load, const SwitchDecision& decision) {
  const double seconds = FromBurst(load, decision.at_us);
  const auto burst = static_cast<int64_t>(static_cast<double>(decision.at_us) * 1e-6 /
                                          (load.quiet_s + load.burst_s)) +
                     1;
  return absl::StrFormat("%s %.1f s %s burst %d", decision.to > 1 ? "bind" : "release",
                         std::abs(seconds), seconds < 0 ? "before" : "into", burst);
}

}  // namespace

void PrintSeeds(uint64_t first, uint64_t last) {
  struct Row {
    uint64_t seed = 0;
    double ttft = 0, peak = 0;
    std::vector<SwitchDecision> decisions;
  };
  std::vector<Row> rows;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::vector<GroupRequest> requests = GeneratePhasedLoad(BurstLoad(seed));
    const AggregatedResult dp = Run("dp", Llama70b(), FlyingOptions(), requests);
    const AggregatedResult own = Run("auto", Llama70b(), FlyingOptions(), requests);
    rows.push_back({seed, own.burst.ttft_mean_s / dp.burst.ttft_mean_s,
                    own.peak_output_per_s / dp.peak_output_per_s, own.switches.decisions});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ttft > b.ttft; });
  std::printf(
      "| seed | burst TTFT over DP's | peak output over DP's | decisions |\n|---|---|---|---|\n");
  for (const Row& row : rows) {
    std::vector<std::string> told;
    for (const SwitchDecision& decision : row.decisions) {
      told.push_back(Told(BurstLoad(row.seed), decision));
    }
    std::printf("| %d | %.3f | %.3f | %s |\n", static_cast<int>(row.seed), row.ttft, row.peak,
                absl::StrJoin(told, ", ").c_str());
  }
}

void PrintPolicyTables() {
  PrintHeading("The setting of these tables, by seed (auto)");
  const auto print_seeds = [](const std::string& seeds, const std::vector<Load>& loads) {
    PrintSetting(seeds, "auto", FlyingOptions(), loads);
    PrintSetting(seeds + ", TP only", "flying-share", FlyingOptions(), loads);
  };
  const std::vector<Load> all = PrepareAll(1, 120);
  for (const size_t first : {0, 40, 80}) {
    print_seeds("seeds " + std::to_string(first + 1) + "-" + std::to_string(first + 40),
                {all.begin() + static_cast<std::ptrdiff_t>(first),
                 all.begin() + static_cast<std::ptrdiff_t>(first + 40)});
  }
  print_seeds("all 120 seeds", all);
  const std::vector<Load> loads(all.begin(), all.begin() + 40);
  PrintHeading("Free parameters of the policy (auto), seeds 1-40");
  const auto print = [&](const char* name, const AggregatedOptions& options) {
    PrintSetting(name, "auto", options, loads);
  };
  constexpr Switch kSequential = Switch::kSequential, kHard = Switch::kHard;
  print("count 1, 4", With(1, 4, 0));
  print("count 6, 8", With(6, 8, 0));
  print("count 6, 8, hard", With(6, 8, 0, kHard));
  print("count 8, 12", With(8, 12, 0));
  print("1, 4; 5,000 tokens", With(1, 4, 5000));
  print("1, 8; 5,000 tokens", With(1, 8, 5000));
  print("1, 12; 3,000 tokens", With(1, 12, 3000));
  print("1, 12; 4,000 tokens", With(1, 12, 4000));
  print("1, 12; 5,000 tokens", With(1, 12, 5000));
  print("the same, sequential", With(1, 12, 5000, kSequential));
  print("the same, hard", With(1, 12, 5000, kHard));
  print("1, 12; 6,000 tokens", With(1, 12, 6000));
  print("1, 12; 8,000 tokens", With(1, 12, 8000));
  print("1.25, 12; 5,000 tokens", With(1.25, 12, 5000));
  print("2, 12; 5,000 tokens", With(2, 12, 5000));
  print("6, 12; 5,000 tokens", With(6, 12, 5000));
  print("the same, sequential", With(6, 12, 5000, kSequential));
  print("the same, hard", With(6, 12, 5000, kHard));
  AggregatedOptions equal = FlyingOptions();
  equal.own_share = 0.5;
  print("1, 12; 5,000 tokens; half of the steps own", equal);
}

}  // namespace skein::bench
