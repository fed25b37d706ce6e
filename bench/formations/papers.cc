// Prints Flying Serving's and Shift Parallelism's figures beside those of our simulation, and the
// residuals of the step profiles. --fit also fits the profiles anew.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "bench/formations/paper_points.h"
#include "scheduler/simulator/formations/aggregated_run.h"
#include "scheduler/simulator/formations/builtin_step_profiles.h"

namespace skein::bench {
namespace {

using scheduler::AggregatedOptions;
using scheduler::AggregatedResult;
using scheduler::PhasedLoad;
using scheduler::StepProfile;
using Results = std::map<std::string, AggregatedResult>;

constexpr const char* kPolicies[] = {"dp",
                                     "tp",
                                     "shift",
                                     "hybrid",
                                     "flying-sequential",
                                     "flying-soft",
                                     "flying-hard",
                                     "flying-alternate",
                                     "auto"};

const StepProfile& Profile(const char* name) { return *scheduler::FindStepProfile(name); }

void PrintPoints(const char* title, const StepProfile& profile,
                 const std::vector<PaperPoint>& points) {
  std::printf("\n### %s\n\n| point | source | paper | ours | off |\n|---|---|---|---|---|\n",
              title);
  for (const PaperPoint& point : points) {
    const double ours = point.ours(profile);
    std::printf("| %s | %s | %.4g | %.4g | %+.1f %% |\n", point.what.c_str(), point.source.c_str(),
                point.paper, ours, 100 * (ours / point.paper - 1));
  }
}

void PrintNumbers(const StepProfile& profile) {
  std::printf("\n%s:", profile.name.c_str());
  for (const FreeNumber& number : AllNumbers()) {
    std::printf(" %s %.4g", number.name, profile.fitted.*number.field);
  }
  std::printf("\n");
}

// From 48 starts, the best.
StepProfile FitShift(StepProfile profile) {
  StepProfile best = profile;
  double least = 1e9;
  for (int i = 0; i < 48; ++i) {
    profile.fitted = {.compute_share = i % 2 == 0 ? 0.5 : 0.7,
                      .attention_share = 0.5,
                      .hbm_share = 0.85,
                      .link_share = 0.6 + 0.4 * (i / 2 % 3),
                      .collective_s = i / 6 % 2 == 0 ? 5e-6 : 20e-6,
                      .step_s = i / 12 % 2 == 0 ? 1e-3 : 4e-3,
                      .sequence_s = i / 24 == 0 ? 2e-6 : 20e-6};
    const StepProfile fitted = Fit(ShiftPoints(), AllNumbers(), profile);
    const double loss = Loss(ShiftPoints(), fitted);
    if (loss < least) best = fitted;
    least = std::min(least, loss);
  }
  return best;
}

void PrintFit() {
  const StepProfile shift = FitShift(Profile("llama3-70b-h200-fp8"));
  PrintNumbers(shift);
  StepProfile flying = Profile("llama3-70b-h200-bf16");
  flying.fitted = shift.fitted;
  PrintNumbers(Fit(FlyingPoints(), SoftwareNumbers(), flying));
}

AggregatedOptions Options(double bind, double release) {
  AggregatedOptions options;
  options.driver.policy = {.bind_sequences = bind,
                           .release_sequences = release,
                           .min_dwell_us = 5 * scheduler::kSecondUs};
  return options;
}

PhasedLoad FlyingLoad(uint64_t seed) {
  PhasedLoad load;
  load.quiet_s = 120;
  load.prompt_min = 500;
  load.prompt_max = 5000;
  load.output_min = 20;
  load.output_max = 180;
  load.seed = seed;
  return load;
}

Results RunAll(const StepProfile& profile, const AggregatedOptions& options,
               const PhasedLoad& load) {
  const auto requests = GeneratePhasedLoad(load);
  Results results;
  for (const char* name : kPolicies) {
    results[name] =
        RunAggregated(*scheduler::LayoutPolicy::Parse(name), profile, options, requests);
  }
  return results;
}

void PrintRows(const char* title, const Results& results) {
  std::printf(
      "\n### %s\n\n| policy | quiet TTFT, TPOT ms | burst TTFT mean, P90 s | burst queue P90 "
      "s | burst TPOT ms | all: TTFT mean, TPOT P50 ms | priority: TTFT, TPOT ms | peak "
      "output, all tokens/s | steps own, tp, sp %% | binds, releases, others | longest gap s |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n",
      title);
  for (const char* name : kPolicies) {
    const AggregatedResult& r = results.at(name);
    std::printf(
        "| %s | %.0f, %.1f | %.2f, %.2f | %.2f | %.0f | %.0f, %.1f | %.0f, %.1f | %.0f, %.0f "
        "| %.0f, %.0f, %.0f | %ld, %ld, %ld | %.2f |\n",
        name, 1e3 * r.quiet.ttft_mean_s, 1e3 * r.quiet.tpot_mean_s, r.burst.ttft_mean_s,
        r.burst.ttft_p90_s, r.burst.queue_p90_s, 1e3 * r.burst.tpot_mean_s, 1e3 * r.all.ttft_mean_s,
        1e3 * r.all.tpot_p50_s, 1e3 * r.priority.ttft_mean_s, 1e3 * r.priority.tpot_mean_s,
        r.peak_output_per_s, r.peak_tokens_per_s, 100 * r.step_share[0], 100 * r.step_share[1],
        100 * r.step_share[2], static_cast<long>(r.switches.binds),
        static_cast<long>(r.switches.releases), static_cast<long>(r.switches.others),
        r.all.gap_max_s);
  }
}

void PrintBeside(const char* what, double paper, double ours) {
  std::printf("| %s | %.4g | %.4g |\n", what, paper, ours);
}

void PrintFlying(const Results& quiet, const Results& bursts) {
  std::printf(
      "\n### Flying Serving, figures 8 and 9: ratios\n\n| | paper | ours |\n|---|---|---|\n");
  const AggregatedResult& dp = bursts.at("dp");
  for (const char* name : {"flying-alternate", "auto"}) {
    const AggregatedResult& own = bursts.at(name);
    std::printf("| **%s** | | |\n", name);
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
  std::printf("| **levels** | | |\n");
  PrintBeside("TTFT of TP, quiet, ms", 212, 1e3 * quiet.at("tp").quiet.ttft_mean_s);
  PrintBeside("TTFT of DP, bursts, s", 4.23, dp.burst.ttft_mean_s);
  PrintBeside("peak output of DP, tokens/s", 3169, dp.peak_output_per_s);
}

void PrintShift() {
  const StepProfile& profile = Profile("llama3-70b-h200-fp8");
  std::printf(
      "\n### Shift Parallelism, figure 11: completion of 8k / 250 by rate, s\n\n"
      "| requests/s | dp | tp | shift | shift over the better | steps in SP %% |\n"
      "|---|---|---|---|---|---|\n");
  for (const double rate : {0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0}) {
    PhasedLoad load;
    load.burst_s = 0;
    load.quiet_rate_min = load.quiet_rate_max = rate;
    load.requests = 400;
    load.prompt_min = load.prompt_max = 8000;
    load.output_min = load.output_max = 250;
    AggregatedOptions options;
    options.limits.step_tokens = 8192;
    const auto requests = GeneratePhasedLoad(load);
    const auto run = [&](const char* name) {
      return RunAggregated(*scheduler::LayoutPolicy::Parse(name), profile, options, requests);
    };
    const double dp = run("dp").all.completion_mean_s;
    const double tp = run("tp").all.completion_mean_s;
    const AggregatedResult shift = run("shift");
    std::printf("| %.2f | %.2f | %.2f | %.2f | %.2f | %.0f |\n", rate, dp, tp,
                shift.all.completion_mean_s, shift.all.completion_mean_s / std::min(dp, tp),
                100 * shift.step_share[2]);
  }
}

void PrintSweep() {
  std::printf(
      "\n### Free parameters of the policy (auto), three seeds: thresholds in sequences an "
      "instance, and how it releases\n\n| bind, release | release | burst TTFT over DP's | "
      "quiet TTFT over TP's, without bursts | peak output over DP's | switches |\n"
      "|---|---|---|---|---|---|\n");
  const StepProfile& profile = Profile("llama3-70b-h200-bf16");
  const auto run = [&](const char* name, const AggregatedOptions& options, const PhasedLoad& load) {
    return RunAggregated(*scheduler::LayoutPolicy::Parse(name), profile, options,
                         GeneratePhasedLoad(load));
  };
  const std::pair<double, double> thresholds[] = {{1, 4}, {4, 6}, {6, 8}, {8, 12}};
  for (const auto& [bind, release] : thresholds) {
    for (const bool hard : {true, false}) {
      AggregatedOptions options = Options(bind, release);
      options.driver.release = hard ? scheduler::Switch::kHard : scheduler::Switch::kSequential;
      double burst = 0, quiet = 0, peak = 0, switches = 0;
      for (const uint64_t seed : {1, 2, 3}) {
        PhasedLoad load = FlyingLoad(seed);
        const AggregatedResult dp = run("dp", options, load);
        const AggregatedResult own = run("auto", options, load);
        burst += own.burst.ttft_mean_s / dp.burst.ttft_mean_s / 3;
        peak += own.peak_output_per_s / dp.peak_output_per_s / 3;
        switches +=
            static_cast<double>(own.switches.binds + own.switches.releases + own.switches.others) /
            3;
        load.burst_s = 0;
        load.requests = 1500;
        quiet += run("auto", options, load).quiet.ttft_mean_s /
                 run("tp", options, load).quiet.ttft_mean_s / 3;
      }
      std::printf("| %.0f, %.0f | %s | %.2f | %.2f | %.3f | %.0f |\n", bind, release,
                  hard ? "hard" : "sequential", burst, quiet, peak, switches);
    }
  }
}

void PrintAll() {
  const StepProfile& flying = Profile("llama3-70b-h200-bf16");
  PrintPoints("llama3-70b-h200-fp8 at Shift Parallelism's points", Profile("llama3-70b-h200-fp8"),
              ShiftPoints());
  PrintPoints("llama3-70b-h200-bf16 at Flying Serving's points", flying, FlyingPoints());
  PhasedLoad load = FlyingLoad(1);
  const Results bursts = RunAll(flying, Options(6, 8), load);
  PrintRows(
      "Flying's bursts: 120 s of 2-5 requests/s, 15 s of 10-30; prompts 500-5,000, outputs "
      "20-180; seed 1",
      bursts);
  load.burst_s = 0;
  load.requests = 1500;
  const Results quiet = RunAll(flying, Options(6, 8), load);
  PrintRows("the same without bursts, 1,500 requests", quiet);
  PrintFlying(quiet, bursts);
  PhasedLoad priority = FlyingLoad(1);
  priority.burst_s = 0;
  priority.quiet_rate_min = 3;
  priority.requests = 1500;
  priority.prompt_min = 100;
  priority.prompt_max = 1500;
  priority.output_min = 200;
  priority.output_max = 1000;
  priority.priority_share = 0.1;
  AggregatedOptions limited = Options(6, 8);
  limited.limits.sequences = 64;
  PrintRows(
      "table 1: 3-5 requests/s, a tenth of priority 1; prompts 100-1,500, outputs 200-1,000, "
      "at most 64 sequences a batch",
      RunAll(flying, limited, priority));
  PrintShift();
  PrintSweep();
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--fit") == 0) skein::bench::PrintFit();
  skein::bench::PrintAll();
}
