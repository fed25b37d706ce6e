#include "bench/formations/flying_tables.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/formations/tables.h"

namespace skein::bench {
namespace {

using scheduler::AggregatedOptions;
using scheduler::AggregatedResult;
using scheduler::GroupRequest;
using scheduler::PhasedLoad;
using scheduler::PhaseFigures;
using scheduler::StepProfile;
using scheduler::Switch;
using scheduler::SwitchDecision;
using scheduler::TimeUs;
using Results = std::map<std::string, AggregatedResult>;

constexpr const char* kPolicies[] = {
    "dp",          "tp",          "shift",        "hybrid", "flying-sequential",
    "flying-soft", "flying-hard", "flying-share", "auto"};
constexpr const char* kStatics[] = {"dp", "tp", "shift", "hybrid"};

const StepProfile& Llama70b() { return Profile("llama3-70b-h200-bf16"); }

// The setting of all tables but the policy's; of the orchestrator's defaults, too, are 1 and 10 s.
AggregatedOptions Options() {
  AggregatedOptions options;
  options.driver.policy = {
      .bind_sequences = 1, .release_sequences = 12, .release_waiting_tokens = 5000};
  return options;
}

PhasedLoad BurstLoad(uint64_t seed) {
  PhasedLoad load;
  load.quiet_s = 120;
  load.prompt_min = 500;
  load.prompt_max = 5000;
  load.output_min = 20;
  load.output_max = 180;
  load.seed = seed;
  return load;
}

PhasedLoad QuietLoad(uint64_t seed) {
  PhasedLoad load = BurstLoad(seed);
  load.burst_s = 0;
  load.requests = 1500;
  return load;
}

// Three to five requests a second, a tenth of them urgent.
PhasedLoad PriorityLoad() {
  PhasedLoad load = QuietLoad(1);
  load.quiet_rate_min = 3;
  load.prompt_min = 100;
  load.prompt_max = 1500;
  load.output_min = 200;
  load.output_max = 1000;
  load.priority_share = 0.1;
  return load;
}

Results RunAll(const AggregatedOptions& options, const PhasedLoad& load) {
  const std::vector<GroupRequest> requests = GeneratePhasedLoad(load);
  Results results;
  for (const char* name : kPolicies) results[name] = Run(name, Llama70b(), options, requests);
  return results;
}

// One figure of `auto` over the least of the static layouts that refuse no request.
double OverBestStatic(const Results& results, PhaseFigures AggregatedResult::*phase,
                      double PhaseFigures::*figure) {
  double least = std::numeric_limits<double>::infinity();
  for (const char* name : kStatics) {
    const AggregatedResult& layout = results.at(name);
    if (layout.refused == 0) least = std::min(least, layout.*phase.*figure);
  }
  return results.at("auto").*phase.*figure / least;
}

// TTFT and TPOT by phase; "-" where a phase has no requests.
std::string OverBestStatic(const Results& results) {
  std::vector<std::string> phases;
  for (const auto phase : {&AggregatedResult::quiet, &AggregatedResult::burst}) {
    phases.push_back(
        (results.at("auto").*phase).requests == 0
            ? "-"
            : absl::StrFormat("%.3f, %.3f",
                              OverBestStatic(results, phase, &PhaseFigures::ttft_mean_s),
                              OverBestStatic(results, phase, &PhaseFigures::tpot_mean_s)));
  }
  return absl::StrJoin(phases, "; ");
}

void PrintRows(const char* title, const Results& results) {
  std::printf(
      "\n### %s\n\n| policy | quiet TTFT, TPOT ms | burst TTFT mean, P90 s | burst queue P90 "
      "s | burst TPOT ms | all: TTFT mean, TPOT P50 ms | priority: TTFT, TPOT ms | peak "
      "output, all tokens/s | steps own, tp, sp %% | binds, releases, others | longest gap s | "
      "over the best static: quiet TTFT, TPOT; burst TTFT, TPOT |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      title);
  for (const char* name : kPolicies) {
    const AggregatedResult& r = results.at(name);
    std::printf(
        "| %s | %.0f, %.1f | %.2f, %.2f | %.2f | %.0f | %.0f, %.1f | %.0f, %.1f | %.0f, %.0f "
        "| %.0f, %.0f, %.0f | %ld, %ld, %ld | %.2f | %s |\n",
        name, 1e3 * r.quiet.ttft_mean_s, 1e3 * r.quiet.tpot_mean_s, r.burst.ttft_mean_s,
        r.burst.ttft_p90_s, r.burst.queue_p90_s, 1e3 * r.burst.tpot_mean_s, 1e3 * r.all.ttft_mean_s,
        1e3 * r.all.tpot_p50_s, 1e3 * r.priority.ttft_mean_s, 1e3 * r.priority.tpot_mean_s,
        r.peak_output_per_s, r.peak_tokens_per_s, 100 * r.step_share[0], 100 * r.step_share[1],
        100 * r.step_share[2], static_cast<long>(r.switches.binds),
        static_cast<long>(r.switches.releases), static_cast<long>(r.switches.others),
        r.all.gap_max_s, name == std::string("auto") ? OverBestStatic(results).c_str() : "");
  }
}

void PrintRatios(const Results& quiet, const Results& bursts) {
  std::printf(
      "\n### Flying Serving, figures 8 and 9: ratios\n\n| | paper | ours | off "
      "|\n|---|---|---|---|\n");
  const AggregatedResult& dp = bursts.at("dp");
  for (const char* name : {"flying-share", "auto"}) {
    const AggregatedResult& own = bursts.at(name);
    std::printf("| **%s** | | | |\n", name);
    PrintBeside("quiet TTFT over TP's, without bursts", 223.0 / 212,
                quiet.at(name).quiet.ttft_mean_s / quiet.at("tp").quiet.ttft_mean_s);
    PrintBeside("burst TTFT over DP's", 4.38 / 4.23, own.burst.ttft_mean_s / dp.burst.ttft_mean_s);
    PrintBeside("peak output over DP's", 3059.0 / 3169,
                own.peak_output_per_s / dp.peak_output_per_s);
    PrintBeside("peak output over Shift's", 1.22,
                own.peak_output_per_s / bursts.at("shift").peak_output_per_s);
    PrintBeside("Shift's burst P90 TTFT over its", 3.39,
                bursts.at("shift").burst.ttft_p90_s / own.burst.ttft_p90_s);
    PrintBeside("Shift's burst P90 queue over its", 2.48,
                bursts.at("shift").burst.queue_p90_s / own.burst.queue_p90_s);
  }
  std::printf("| **levels** | | | |\n");
  PrintBeside("TTFT of TP, quiet, ms", 212, 1e3 * quiet.at("tp").quiet.ttft_mean_s);
  PrintBeside("TTFT of DP, bursts, s", 4.23, dp.burst.ttft_mean_s);
  PrintBeside("peak output of DP, tokens/s", 3169, dp.peak_output_per_s);
}

// Table 1.
void PrintPriority() {
  AggregatedOptions options = Options();
  options.limits.sequences = 64;
  const Results results = RunAll(options, PriorityLoad());
  PrintRows(
      "table 1: 3-5 requests/s, a tenth of priority 1; prompts 100-1,500, outputs 200-1,000, "
      "at most 64 sequences a batch",
      results);
  const AggregatedResult& dp = results.at("dp");
  const AggregatedResult& tp = results.at("tp");
  const AggregatedResult& own = results.at("auto");
  std::printf("\n| table 1, auto | paper | ours | off |\n|---|---|---|---|\n");
  PrintBeside("TPOT of urgent requests over TP's", 24.0 / 22,
              own.priority.tpot_mean_s / tp.priority.tpot_mean_s);
  PrintBeside("TTFT of urgent requests over DP's", 74.0 / 166,
              own.priority.ttft_mean_s / dp.priority.ttft_mean_s);
  PrintBeside("TPOT of all over DP's", 28.0 / 32, own.all.tpot_mean_s / dp.all.tpot_mean_s);
  PrintBeside("TTFT of all over DP's", 142.0 / 166, own.all.ttft_mean_s / dp.all.ttft_mean_s);
  PrintBeside("TTFT of all over TP's", 142.0 / 2130, own.all.ttft_mean_s / tp.all.ttft_mean_s);
  PrintBeside("peak output over DP's", 3040.0 / 3164, own.peak_output_per_s / dp.peak_output_per_s);
}

// One model of figure 10: requests of its longest context, one at a time and as a burst.
void PrintLongest(const char* title, const StepProfile& profile, int64_t prompt, int64_t output,
                  int64_t burst) {
  PhasedLoad load;
  load.burst_s = 0;
  load.quiet_s = 3600;
  load.requests = 100;
  load.prompt_min = load.prompt_max = prompt;
  load.output_min = load.output_max = output;
  AggregatedOptions options = Options();
  options.limits.step_tokens = 8192;
  // Apart enough that hardly any two meet.
  const double alone_s = Run("dp", profile, options, Batch(1, prompt, output)).end_s;
  load.quiet_rate_min = load.quiet_rate_max = alone_s > 0 ? 0.1 / alone_s : 0.01;
  std::printf(
      "\n%s\n\n| policy | peak prompt tokens/s | TTFT ms | ILT ms | refused | steps "
      "alone: own, tp, sp %% | in the burst |\n|---|---|---|---|---|---|---|\n",
      title);
  Results light, peak;
  for (const char* name : {"dp", "tp", "flying-share", "auto"}) {
    const AggregatedResult& l = light[name] = Run(name, profile, options, GeneratePhasedLoad(load));
    const AggregatedResult& p = peak[name] =
        Run(name, profile, options, Batch(burst, prompt, output));
    std::printf("| %s | %.0f | %.0f | %.1f | %ld | %.0f, %.0f, %.0f | %.0f, %.0f, %.0f |\n", name,
                p.peak_tokens_per_s - p.peak_output_per_s, 1e3 * l.all.ttft_mean_s,
                1e3 * l.all.tpot_mean_s, static_cast<long>(l.refused), 100 * l.step_share[0],
                100 * l.step_share[1], 100 * l.step_share[2], 100 * p.step_share[0],
                100 * p.step_share[1], 100 * p.step_share[2]);
  }
  if (light.at("dp").refused > 0) return;
  std::printf("\n| flying-share | paper | ours | off |\n|---|---|---|---|\n");
  const auto prompts = [](const AggregatedResult& r) {
    return r.peak_tokens_per_s - r.peak_output_per_s;
  };
  PrintBeside("peak prompt tokens/s over DP's (paper: DP-level)", 1,
              prompts(peak.at("flying-share")) / prompts(peak.at("dp")));
  PrintBeside("TTFT over TP's (paper: nearly TP's)", 1,
              light.at("flying-share").all.ttft_mean_s / light.at("tp").all.ttft_mean_s);
  PrintBeside("ILT over TP's (paper: within 5 %)", 1.05,
              light.at("flying-share").all.tpot_mean_s / light.at("tp").all.tpot_mean_s);
}

void PrintFigure10() {
  std::printf(
      "\n### Flying Serving, figure 10: each model's longest context, one request at a time (TTFT, "
      "ILT) and a burst (peak)\n");
  PrintLongest("Llama-70B, 8K: prompts 8,000, outputs 190; a burst of 400", Llama70b(), 8000, 190,
               400);
  StepProfile small = Profile("llama3-8b");
  small.base_devices = 2;
  PrintLongest(
      "Nemotron-8B, 1M, as llama3-8b with instances of two devices: prompts 1,000,000, outputs "
      "190; a burst of 16",
      small, 1'000'000, 190, 16);
}

// ---- the policy over many seeds ----

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
  load.dp = Run("dp", Llama70b(), Options(), load.bursts);
  load.tp = Run("tp", Llama70b(), Options(), load.bursts);
  load.tp_quiet = Run("tp", Llama70b(), Options(), load.quiet);
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

// Mean over the seeds, and its 10th or 90th percentile: the worse tail.
void PrintMean(const std::vector<Ratios>& all, double Ratios::*field, bool low_is_worse) {
  double sum = 0;
  std::vector<double> values;
  for (const Ratios& one : all) {
    values.push_back(one.*field);
    sum += one.*field;
  }
  std::sort(values.begin(), values.end());
  const size_t tenth = values.size() / 10;
  std::printf(" %.3f (%.2f) |", sum / static_cast<double>(all.size()),
              low_is_worse ? values[tenth] : values[values.size() - 1 - tenth]);
}

void PrintSetting(const std::string& name, const char* policy, const AggregatedOptions& options,
                  const std::vector<Load>& loads) {
  std::vector<Ratios> all;
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
  AggregatedOptions options = Options();
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
    const AggregatedResult dp = Run("dp", Llama70b(), Options(), requests);
    const AggregatedResult own = Run("auto", Llama70b(), Options(), requests);
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

void PrintFlyingTables() {
  const Results bursts = RunAll(Options(), BurstLoad(1));
  PrintRows(
      "Flying's bursts: 120 s of 2-5 requests/s, 15 s of 10-30; prompts 500-5,000, outputs "
      "20-180; seed 1",
      bursts);
  const Results quiet = RunAll(Options(), QuietLoad(1));
  PrintRows("the same without bursts, 1,500 requests", quiet);
  PrintRatios(quiet, bursts);
  PrintPriority();
  PrintFigure10();
}

void PrintPolicyTables() {
  PrintHeading("The setting of these tables, by seed (auto)");
  const auto print_seeds = [](const std::string& seeds, const std::vector<Load>& loads) {
    PrintSetting(seeds, "auto", Options(), loads);
    PrintSetting(seeds + ", TP only", "flying-share", Options(), loads);
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
  AggregatedOptions equal = Options();
  equal.own_share = 0.5;
  print("1, 12; 5,000 tokens; half of the steps own", equal);
}

}  // namespace skein::bench
