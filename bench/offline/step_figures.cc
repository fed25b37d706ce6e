// The figures that need no job: KV capacity, and single steps.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bench/offline/sidp_points.h"
#include "bench/offline/tables.h"
#include "scheduler/simulator/offline/decode_iteration.h"
#include "scheduler/simulator/offline/weight_fetch.h"
#include "scheduler/simulator/offline/weight_memory.h"

namespace skein::bench {
namespace {

using scheduler::DecodeWork;
using scheduler::SharedSteps;
using scheduler::SlotBytes;
using scheduler::StepWork;
using Cas = SharedSteps::Cas;

constexpr int64_t kContext = 1024;

std::vector<StepWork> Everywhere(const SharedSteps& steps, const StepWork& work) {
  return std::vector<StepWork>(static_cast<size_t>(steps.ranks()), work);
}

void PrintKvRow(const char* model, int64_t tp, const char* paper) {
  const scheduler::StepProfile profile = OfflineProfileOf(model, "h20", tp).step;
  const int64_t ranks = 8 / tp;
  const double full = static_cast<double>(FullMemory(profile, ranks).kv_tokens);
  const auto shared = [&](SlotBytes slots) {
    return static_cast<double>(SharedMemory(profile, ranks, slots).kv_tokens);
  };
  const double layers = shared(SlotBytes::kLayers), tiles = shared(SlotBytes::kTiles);
  std::printf("| %s | %d x %d | %.2f | %.2f | %.2f | ", model, static_cast<int>(tp),
              static_cast<int>(ranks), full * 1e-6, layers * 1e-6, tiles * 1e-6);
  if (full > 0) std::printf("%.2f, %.2f | %s |\n", layers / full, tiles / full, paper);
  if (full == 0) std::printf("- | %s |\n", paper);
}

}  // namespace

void PrintKvCapacity() {
  std::printf(
      "\n### Figure 5: KV capacity on 8 H20, millions of tokens\n\n"
      "| model | TP x DP | full weights | SiDP, slots of 4.2 | SiDP, slots of 4.4 | gain | paper "
      "|\n"
      "|---|---|---|---|---|---|---|\n");
  PrintKvRow("qwen3-32b", 4, "1.05");
  PrintKvRow("qwen3-32b", 2, "~1.7 (of three models)");
  PrintKvRow("qwen3-32b", 1, "-");
  PrintKvRow("qwen2.5-72b", 2, "~1.7");
  PrintKvRow("qwen2.5-72b", 1, "only SiDP, ~1.0 M");
  PrintKvRow("llama-3.1-70b", 2, "~1.7");
  PrintKvRow("llama-3.1-70b", 1, "only SiDP, ~1.0 M");
  PrintBesideHead("Figure 2 (a): Qwen3-32B, 8 H20");
  const auto full = [](int64_t tp) {
    const int64_t ranks = 8 / tp;
    return static_cast<double>(
        FullMemory(OfflineProfileOf("qwen3-32b", "h20", tp).step, ranks).kv_tokens);
  };
  PrintBeside("KV lost by DP 8 against TP 8, %", 45, 100 * (1 - full(1) / full(8)));
}

void PrintOverlap() {
  PrintBesideHead(
      "Figure 9: T(B) over the time to fetch all FFN weights, Llama-3.1-70B, TP 2, S = 1K");
  struct Case {
    const char* device;
    int64_t batch;
    std::optional<double> paper;
  };
  const Case cases[] = {{"h20", 64, {}},    {"h20", 128, {}},  {"h20", 256, 3},
                        {"h20", 512, 5},    {"h200", 128, {}}, {"h200", 256, 1.05},
                        {"h200", 512, 1.8}, {"b200", 128, {}}, {"b200", 256, 1},
                        {"b200", 512, {}}};
  for (const Case& one : cases) {
    const auto profile = OfflineProfileOf("llama-3.1-70b", one.device, 2);
    const SharedSteps steps(profile, {.ranks = 2});
    PrintBeside(
        std::string(one.device) + ", B = " + std::to_string(one.batch), one.paper,
        steps.FullSeconds(DecodeWork(one.batch, kContext)) / PaperFetchSeconds(profile.step));
  }
  std::printf(
      "\nIn one direction of the link the fetch takes twice as long, and the ratios halve.\n");
}

void PrintPeakShifting() {
  std::printf(
      "\n### Figure 10: throughput with peak shifting over that without, Qwen3-32B on H20, S = "
      "1K\n\n"
      "| DP | B of an instance | d - 1 slots | 2 (d - 1) slots | paper |\n|---|---|---|---|---|\n");
  for (const int64_t ranks : {4, 8}) {
    for (const int64_t batch : {16, 32, 64, 128, 256}) {
      const auto profile = OfflineProfileOf("qwen3-32b", "h20", 1);
      const SharedSteps steps(profile, {.ranks = ranks});
      const auto split = SplitOf(profile, DecodeWork(batch, kContext));
      const double layers = static_cast<double>(profile.step.shape.layers);
      scheduler::FetchedStep step = {.ranks = ranks,
                                     .layers = profile.step.shape.layers,
                                     .attention_s = split.attention_s / layers,
                                     .feed_forward_s = split.feed_forward_s / layers,
                                     .outside_s = split.outside_s,
                                     .fetch_s = steps.LayerFetchSeconds()};
      const auto gain = [&](int64_t slots) {
        step.slots = slots;
        step.peak_shifting = false;
        const double in_order_s = FetchedStepSeconds(step);
        step.peak_shifting = true;
        return in_order_s / FetchedStepSeconds(step);
      };
      std::printf("| %d | %d | %.2f | %.2f | %s |\n", static_cast<int>(ranks),
                  static_cast<int>(batch), gain(ranks - 1), gain(2 * (ranks - 1)),
                  ranks == 4 ? "2.5" : "3.4");
    }
  }
}

void PrintModes() {
  std::printf(
      "\n### Figure 11: ms of a step, Llama-3.1-70B on H20, TP 2 x DP 2, S = 1K\n\n"
      "| B of an instance | full weights | WaS | CaS | SiDP / full weights | paper |\n"
      "|---|---|---|---|---|---|\n");
  SharedSteps steps(OfflineProfileOf("llama-3.1-70b", "h20", 2), {.ranks = 2});
  const auto row = [&](int64_t batch, const std::vector<StepWork>& all, const char* what,
                       const char* paper) {
    const StepWork work = DecodeWork(batch, kContext);
    const double full_s = steps.FullSeconds(work), was_s = steps.WasSeconds(work);
    const double cas_s = steps.CasSeconds(all);
    std::printf("| %s | %.1f | %.1f | %.1f | %.2f | %s |\n", what, full_s * 1e3, was_s * 1e3,
                cas_s * 1e3, std::min(was_s, cas_s) / full_s, paper);
  };
  row(1, {DecodeWork(1, kContext), {}}, "1, the other has none", "CaS, 1.12");
  for (const int64_t batch : {1, 2, 4, 8, 16, 32, 64, 128}) {
    row(batch, Everywhere(steps, DecodeWork(batch, kContext)), std::to_string(batch).c_str(),
        batch == 128 ? "WaS, 1.00"
        : batch > 32 ? "-"
                     : "CaS substantially faster");
  }
  std::printf("\nB_th: %d.\n", static_cast<int>(steps.Threshold(kContext)));
}

void PrintCasVersions() {
  PrintBesideHead(
      "Figure 14: seconds of one request, Llama-3.1-70B on H20, TP 2 x DP 2, B = 1; CaS V3 is 12 "
      "s");
  const SharedSteps steps(OfflineProfileOf("llama-3.1-70b", "h20", 2), {.ranks = 2});
  const StepWork single = DecodeWork(1, kContext);
  const std::vector<StepWork> all = {single, {}};
  const double unit = 12 / steps.CasSeconds(all);
  PrintBeside("FSDP-like", 33, steps.GatheredSeconds(single) * unit);
  PrintBeside("CaS V1: point to point", 25, steps.CasSeconds(all, Cas::kUnfused) * unit);
  PrintBeside("CaS V2: one fused product", 19, steps.CasSeconds(all, Cas::kFused) * unit);
  PrintBeside("CaS V3: without dummy runs", 12, steps.CasSeconds(all) * unit);
  PrintBeside("full weights", 12 / 1.12, steps.FullSeconds(single) * unit);
}

}  // namespace skein::bench
