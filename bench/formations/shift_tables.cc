#include "bench/formations/shift_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "bench/formations/request_lengths.h"
#include "bench/formations/tables.h"

namespace skein::bench {
namespace {

using scheduler::AggregatedOptions;
using scheduler::AggregatedResult;
using scheduler::GroupRequest;
using scheduler::PhasedLoad;
using Requests = std::vector<GroupRequest>;
using Results = std::map<std::string, AggregatedResult>;

constexpr const char* kLayouts[] = {"dp", "tp", "shift"};
constexpr int64_t kOutput = 250;  // of a request, in sections 4.3 and 4.5

AggregatedOptions Options() {
  AggregatedOptions options;
  options.limits.step_tokens = 8192;
  return options;
}

AggregatedResult RunShift(const char* policy, const Requests& requests, double shift_s = 0) {
  AggregatedOptions options = Options();
  options.shift_s = shift_s;
  return Run(policy, Profile("llama3-70b-h200-fp8"), options, requests);
}

// As many requests of a batch as the paper has up to 8k, then as many tokens.
Requests FullBatch(int64_t prompt) {
  return Batch(std::max<int64_t>(128, std::min<int64_t>(1920, 1920 * 8192 / prompt)), prompt,
               kOutput);
}

// A cell; "-" for a request that fits no instance.
void PrintCell(double value, const AggregatedResult& result) {
  if (result.refused > 0) {
    std::printf(" - |");
  } else {
    std::printf(value >= 1000 ? " %.0f |" : " %.3g |", value);
  }
}

void PrintFigure10() {
  std::printf(
      "\n### Shift Parallelism, figure 10: contexts of 2k to 128k, 250 output tokens\n\nOne "
      "request "
      "at a time (TTFT, TPOT), and a batch (prompt and output tokens/s).\n\n"
      "| prompt | TTFT ms: dp | tp | shift | TPOT ms: dp | tp | shift | tokens/s: dp | tp | shift "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n");
  double ttft_dp = 0, ttft_tp = 0, tpot_dp = 0, tpot_tp = 0;
  Results at_4k;
  for (int64_t prompt = 2048; prompt <= 131072; prompt *= 2) {
    Results one, all;
    std::printf("| %ldk |", static_cast<long>(prompt / 1024));
    for (const char* name : kLayouts) {
      one[name] = RunShift(name, Batch(1, prompt, kOutput));
      all[name] = RunShift(name, FullBatch(prompt));
    }
    for (const char* name : kLayouts) PrintCell(1e3 * one[name].all.ttft_mean_s, one[name]);
    for (const char* name : kLayouts) PrintCell(1e3 * one[name].all.tpot_mean_s, one[name]);
    for (const char* name : kLayouts) PrintCell(all[name].mean_tokens_per_s, all[name]);
    std::printf("\n");
    const AggregatedResult& shift = one.at("shift");
    ttft_tp = std::max(ttft_tp, one.at("tp").all.ttft_mean_s / shift.all.ttft_mean_s);
    tpot_tp = std::max(tpot_tp, one.at("tp").all.tpot_mean_s / shift.all.tpot_mean_s);
    if (prompt == 4096) at_4k = all;
    if (one.at("dp").refused > 0) continue;
    ttft_dp = std::max(ttft_dp, one.at("dp").all.ttft_mean_s / shift.all.ttft_mean_s);
    tpot_dp = std::max(tpot_dp, one.at("dp").all.tpot_mean_s / shift.all.tpot_mean_s);
  }
  const auto rate = [&](const char* name) { return at_4k.at(name).mean_tokens_per_s; };
  std::printf("\n| the most over these contexts | paper | ours | off |\n|---|---|---|---|\n");
  PrintBeside("TTFT, DP over Shift", 6.97, ttft_dp);
  PrintBeside("TTFT, TP over Shift", 1.56, ttft_tp);
  PrintBeside("TPOT, DP over Shift", 2.45, tpot_dp);
  PrintBeside("TPOT, TP over Shift (paper: similar)", 1, tpot_tp);
  PrintBeside("tokens/s of a batch of 4k, Shift over TP", 1.51, rate("shift") / rate("tp"));
  PrintBeside("tokens/s of a batch of 4k, Shift over DP", 0.82, rate("shift") / rate("dp"));
  PrintBeside("tokens/s of a batch of 4k, TP over DP", 0.54, rate("tp") / rate("dp"));
}

Requests Steady(double rate) {
  PhasedLoad load;
  load.burst_s = 0;
  load.quiet_rate_min = load.quiet_rate_max = rate;
  load.requests = 400;
  load.prompt_min = load.prompt_max = 8000;
  load.output_min = load.output_max = kOutput;
  return GeneratePhasedLoad(load);
}

void PrintFigure11() {
  std::printf(
      "\n### Shift Parallelism, figure 11: completion of 8k / 250 by rate, s\n\n"
      "| requests/s | dp | tp | shift | shift over the better | steps in SP %% | shifts/s |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const double rate : {0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0}) {
    const Requests requests = Steady(rate);
    const double dp = RunShift("dp", requests).all.completion_mean_s;
    const double tp = RunShift("tp", requests).all.completion_mean_s;
    const AggregatedResult shift = RunShift("shift", requests);
    std::printf("| %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | %.2f |\n", rate, dp, tp,
                shift.all.completion_mean_s, shift.all.completion_mean_s / std::min(dp, tp),
                100 * shift.step_share[2], static_cast<double>(shift.shifts) / shift.end_s);
  }
}

void PrintShiftCost() {
  std::printf(
      "\n### The cost of a shift between two steps: completion of 8k / 250 over that of free shifts"
      "\n\n| requests/s | shifts a request | 0.1 ms | 1 ms | 5 ms | 15 ms | ms at which TP is as "
      "good |\n|---|---|---|---|---|---|---|\n");
  for (const double rate : {0.5, 1.0, 2.0, 4.0, 6.0}) {
    const Requests requests = Steady(rate);
    const AggregatedResult free = RunShift("shift", requests);
    const auto completion = [&](double shift_s) {
      return RunShift("shift", requests, shift_s).all.completion_mean_s;
    };
    std::printf("| %.2f | %.1f |", rate,
                static_cast<double>(free.shifts) / static_cast<double>(free.all.requests));
    for (const double ms : {0.1, 1.0, 5.0, 15.0}) {
      std::printf(" %.3f |", completion(ms / 1e3) / free.all.completion_mean_s);
    }
    const double tp = RunShift("tp", requests).all.completion_mean_s;
    double low = 0, high = 10;
    for (int i = 0; i < 20; ++i) {
      const double middle = (low + high) / 2;
      (completion(middle) < tp ? low : high) = middle;
    }
    std::printf(" %.0f |\n", 1e3 * low);
  }
}

// Table 5 has a mix of requests from HumanEval and of an agent at SWE-bench, and a rate with four
// bursts; neither is given.
struct BurstRate {
  double quiet = 0, burst = 0;  // requests/s
  double burst_s = 0;           // of one of four, after a minute each
};

void PrintTable5(const char* mixed_with, const LengthQuantiles& lengths, const BurstRate& rate) {
  PhasedLoad load;
  load.quiet_s = 60;
  load.quiet_rate_min = load.quiet_rate_max = rate.quiet;
  load.burst_s = rate.burst_s;
  load.burst_rate_min = load.burst_rate_max = rate.burst;
  load.requests = std::llround(4 * (load.quiet_s * rate.quiet + rate.burst_s * rate.burst));
  Requests requests = GeneratePhasedLoad(load);
  MixLengths(HumanEvalLengths(), lengths, /*seed=*/1, &requests);
  Results results;
  for (const char* name : kLayouts) results[name] = RunShift(name, requests);
  std::printf(
      "\nHalf HumanEval, half %s; 60 s of %.1f requests/s and %.0f s of %.0f, four times\n\n"
      "| | TTFT P50 ms | TPOT P50 ms | peak tokens/s | steps own, tp, sp %% |\n"
      "|---|---|---|---|---|\n| paper: dp, tp, shift | 1355, 3930, 148 | 83, 85, 51 | 75535, "
      "51162, "
      "69147 | |\n",
      mixed_with, rate.quiet, rate.burst_s, rate.burst);
  for (const char* name : kLayouts) {
    const AggregatedResult& r = results.at(name);
    std::printf("| %s | %.0f | %.1f | %.0f | %.0f, %.0f, %.0f |\n", name, 1e3 * r.all.ttft_p50_s,
                1e3 * r.all.tpot_p50_s, r.peak_tokens_per_s, 100 * r.step_share[0],
                100 * r.step_share[1], 100 * r.step_share[2]);
  }
  const AggregatedResult& dp = results.at("dp");
  const AggregatedResult& tp = results.at("tp");
  const AggregatedResult& shift = results.at("shift");
  std::printf("\n| | paper | ours | off |\n|---|---|---|---|\n");
  PrintBeside("peak, Shift over TP", 69147.0 / 51162,
              shift.peak_tokens_per_s / tp.peak_tokens_per_s);
  PrintBeside("peak, Shift over DP", 69147.0 / 75535,
              shift.peak_tokens_per_s / dp.peak_tokens_per_s);
  PrintBeside("median TTFT, DP over Shift", 1355.0 / 148, dp.all.ttft_p50_s / shift.all.ttft_p50_s);
  PrintBeside("median TTFT, TP over Shift", 3930.0 / 148, tp.all.ttft_p50_s / shift.all.ttft_p50_s);
  PrintBeside("median TPOT, DP over Shift", 83.0 / 51, dp.all.tpot_p50_s / shift.all.tpot_p50_s);
  PrintBeside("median TPOT, TP over Shift", 85.0 / 51, tp.all.tpot_p50_s / shift.all.tpot_p50_s);
}

void PrintFigure13() {
  std::printf(
      "\n### Shift Parallelism, figure 13: what the time of a batch goes to, %% of the steps' "
      "time\n"
      "\n| prompt | layout | time s | products | attention | collectives | software | steps own, "
      "tp, "
      "sp %% |\n|---|---|---|---|---|---|---|---|\n");
  for (const int64_t prompt : {2048, 8192, 32768, 65536}) {
    for (const char* name : kLayouts) {
      const AggregatedResult r = RunShift(name, FullBatch(prompt));
      const double all = r.time.Total() / 100;
      std::printf("| %ldk | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.1f, %.1f, %.1f |\n",
                  static_cast<long>(prompt / 1024), name, r.end_s, r.time.products_s / all,
                  r.time.attention_s / all, r.time.collectives_s / all, r.time.software_s / all,
                  100 * r.step_share[0], 100 * r.step_share[1], 100 * r.step_share[2]);
    }
  }
}

}  // namespace

void PrintShiftTables() {
  PrintFigure10();
  PrintFigure11();
  std::printf("\n### Shift Parallelism, table 5: bursts, two mixes of requests\n");
  PrintTable5("Mooncake's conversations", MooncakeLengths(), {1, 20, 10});
  PrintTable5("Mooncake's conversations", MooncakeLengths(), {3, 6, 20});
  PrintTable5("Azure's conversations", AzureLengths(), {4.8, 48, 40});
  PrintFigure13();
  PrintShiftCost();
}

}  // namespace skein::bench
