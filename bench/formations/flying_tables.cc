#include "bench/formations/flying_tables.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/formations/flying_loads.h"
#include "bench/formations/tables.h"
#include "scheduler/base/formation_messages.h"

namespace skein::bench {
namespace {

using scheduler::AggregatedOptions;
using scheduler::AggregatedResult;
using scheduler::GroupRequest;
using scheduler::PhasedLoad;
using scheduler::PhaseFigures;
using scheduler::StepProfile;
using Results = std::map<std::string, AggregatedResult>;

constexpr const char* kPolicies[] = {
    "dp",          "tp",          "shift",        "hybrid", "flying-sequential",
    "flying-soft", "flying-hard", "flying-share", "auto"};
constexpr const char* kStatics[] = {"dp", "tp", "shift", "hybrid"};

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
  AggregatedOptions options = FlyingOptions();
  options.limits.sequences = 64;
  const Results results = RunAll(options, PriorityLoad(1));
  PrintRows(
      "table 1: 3-5 requests/s, a tenth of priority 1; prompts 100-1,500, outputs 200-1,000, "
      "at most 64 sequences a batch; seed 1",
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

// Table 1's ratios over many seeds, by how own sequences fare in the binds of `auto`.
void PrintPrioritySeeds(uint64_t first, uint64_t last) {
  std::printf(
      "\n### table 1, seeds %d to %d: auto, by how own sequences fare when it binds\n\nMean over "
      "the "
      "seeds, in brackets the worst but a tenth of them.\n\n| own | TPOT of urgent requests over "
      "TP's | TTFT of urgent requests over DP's | TTFT of all over DP's | TPOT of all over DP's | "
      "longest gap s |\n|---|---|---|---|---|---|\n",
      static_cast<int>(first), static_cast<int>(last));
  using Own = scheduler::OwnSequences;
  const std::pair<const char*, std::optional<Own>> ways[] = {
      {"by the reason: soft for priority, else share", std::nullopt},
      {"sequential", Own::kSequential},
      {"hard", Own::kHardPreempt},
      {"share", Own::kShare}};
  AggregatedOptions options = FlyingOptions();
  options.limits.sequences = 64;
  for (const auto& [name, own] : ways) {
    options.driver.own = own;
    std::vector<double> urgent_tpot, urgent_ttft, ttft, tpot, gaps;
    for (uint64_t seed = first; seed <= last; ++seed) {
      const std::vector<GroupRequest> requests = GeneratePhasedLoad(PriorityLoad(seed));
      const AggregatedResult dp = Run("dp", Llama70b(), options, requests);
      const AggregatedResult tp = Run("tp", Llama70b(), options, requests);
      const AggregatedResult ours = Run("auto", Llama70b(), options, requests);
      urgent_tpot.push_back(ours.priority.tpot_mean_s / tp.priority.tpot_mean_s);
      urgent_ttft.push_back(ours.priority.ttft_mean_s / dp.priority.ttft_mean_s);
      ttft.push_back(ours.all.ttft_mean_s / dp.all.ttft_mean_s);
      tpot.push_back(ours.all.tpot_mean_s / dp.all.tpot_mean_s);
      gaps.push_back(ours.all.gap_max_s);
    }
    std::printf("| %s |", name);
    for (const std::vector<double>& values : {urgent_tpot, urgent_ttft, ttft, tpot, gaps}) {
      PrintMean(values, /*low_is_worse=*/false);
    }
    std::printf("\n");
  }
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
  AggregatedOptions options = FlyingOptions();
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

}  // namespace

void PrintFlyingTables() {
  const Results bursts = RunAll(FlyingOptions(), BurstLoad(1));
  PrintRows(
      "Flying's bursts: 120 s of 2-5 requests/s, 15 s of 10-30; prompts 500-5,000, outputs "
      "20-180; seed 1",
      bursts);
  const Results quiet = RunAll(FlyingOptions(), QuietLoad(1));
  PrintRows("the same without bursts, 1,500 requests", quiet);
  PrintRatios(quiet, bursts);
  PrintPriority();
  PrintPrioritySeeds(1, 40);
  PrintFigure10();
}

}  // namespace skein::bench
