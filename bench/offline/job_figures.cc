// The figures of whole jobs.
#include <cstdio>
#include <string>

#include "bench/offline/tables.h"

namespace skein::bench {
namespace {

using scheduler::OfflineStrategy;

constexpr const char* kModels[] = {"qwen3-32b", "qwen2.5-72b", "llama-3.1-70b"};

std::string LayoutName(int64_t tp) { return std::to_string(tp) + " x " + std::to_string(8 / tp); }

// How many times the throughput of full weights in DP (x TP) SiDP has, each in its best layout.
struct Gain {
  BestLayout full, shared;
  double Ratio() const { return full.job.seconds / shared.job.seconds; }
};
Gain GainOf(JobSetting setting, OfflineStrategy strategy) {
  return {BestOf(setting, OfflineStrategy::kFull, {1, 2, 4}).value(),
          BestOf(setting, strategy, {1, 2, 4}).value()};
}

// The largest ratio of the same layout.
std::optional<BestLayout> SameLayout(const JobSetting& setting, double* ratio) {
  std::optional<BestLayout> best;
  *ratio = 0;
  for (const int64_t tp : {1, 2, 4}) {
    const auto full = BestJob(setting, tp, OfflineStrategy::kFull);
    const auto shared = BestJob(setting, tp, OfflineStrategy::kSwitched);
    if (!full.has_value() || !shared.has_value()) continue;
    if (full->seconds / shared->seconds <= *ratio) continue;
    *ratio = full->seconds / shared->seconds;
    best = BestLayout{tp, *shared};
  }
  return best;
}

// SiDP's throughput in DP 8, as the paper shows it, over that of `full`; 0: it does not fit.
double OfDp8(const JobSetting& setting, const BestLayout& full) {
  const auto shared = BestJob(setting, 1, OfflineStrategy::kSwitched);
  return shared.has_value() ? full.job.seconds / shared->seconds : 0;
}

void PrintGainHead(const std::string& title) {
  std::printf(
      "\n### %s\n\nModel: the link in one direction, d - 1 slots. Paper's reads: both directions "
      "added up, never hindered.\n\n"
      "| model | S | DP x TP over TP | best DP x TP (TP x DP) | SiDP / that, model | SiDP / that, "
      "paper's reads | SiDP in DP 8 / that, paper's reads | SiDP / full, same layout, paper's "
      "reads | "
      "paper |\n|---|---|---|---|---|---|---|---|---|\n",
      title.c_str());
}

void PrintGainRow(JobSetting setting, bool with_tp, const char* paper) {
  setting.reads = Reads::kModel;
  const Gain model = GainOf(setting, OfflineStrategy::kSwitched);
  setting.reads = Reads::kPaper;
  const Gain reads = GainOf(setting, OfflineStrategy::kSwitched);
  double same = 0;
  const auto layout = SameLayout(setting, &same);
  std::printf("| %s | %dK | ", setting.model, static_cast<int>(setting.tokens / 1024));
  const auto tp = with_tp ? BestJob(setting, 8, OfflineStrategy::kFull) : std::nullopt;
  if (tp.has_value()) std::printf("%.2f", tp->seconds / model.full.job.seconds);
  std::printf(" | %.0f tokens/s (%s) | %.2f (%s) | %.2f (%s) | %.2f | %.2f (%s) | %s |\n",
              model.full.job.output_tokens_per_s, LayoutName(model.full.tp).c_str(), model.Ratio(),
              LayoutName(model.shared.tp).c_str(), reads.Ratio(),
              LayoutName(reads.shared.tp).c_str(), OfDp8(setting, reads.full), same,
              LayoutName(layout->tp).c_str(), paper);
}

}  // namespace

void PrintUtilisation() {
  PrintBesideHead("Figure 2 (b): Qwen3-32B on H20, TP 2 x DP 4, S = 4K, full weights");
  JobSetting setting = {.model = "qwen3-32b"};
  const double most_s = BestJob(setting, 2, OfflineStrategy::kFull)->seconds;
  setting.memory_share = 0.3;
  const auto least = BestJob(setting, 2, OfflineStrategy::kFull);
  if (least.has_value()) {
    PrintBeside("throughput lost with 0.3 of the memory against 0.9, %", 68,
                100 * (1 - most_s / least->seconds));
  }
}

void PrintThroughput(const char* name) {
  const std::string device = name;
  PrintGainHead("Figure " +
                std::string(device == "h20"    ? "6"
                            : device == "h200" ? "7"
                                               : "8") +
                ": throughput on 8 " + device);
  for (const char* model : kModels) {
    PrintGainRow({.model = model, .device = name, .tokens = 1024}, true, "about 1");
    PrintGainRow({.model = model, .device = name, .tokens = 2048}, true, "between");
    PrintGainRow({.model = model, .device = name, .tokens = 4096}, true, "1.3-1.5");
  }
}

void PrintLessMemory() {
  PrintGainHead("Figure 12: throughput on 8 h200 with 0.6 of the memory");
  for (const char* model : {"qwen2.5-72b", "llama-3.1-70b"}) {
    for (const int64_t tokens : {1024, 2048, 4096}) {
      PrintGainRow({.model = model, .device = "h200", .tokens = tokens, .memory_share = 0.6}, false,
                   "1.24-1.51");
    }
  }
}

void PrintAblation() {
  std::printf(
      "\n### Figure 13: throughput over full weights on H20, S = 4K, each in its best layout\n\n"
      "| model | WaS, model | WaS and CaS, model | WaS, paper's reads | WaS and CaS, paper's reads "
      "| "
      "paper |\n|---|---|---|---|---|---|\n");
  for (const char* model : kModels) {
    std::printf("| %s | ", model);
    for (const Reads reads : {Reads::kModel, Reads::kPaper}) {
      for (const auto strategy : {OfflineStrategy::kWas, OfflineStrategy::kSwitched}) {
        const Gain gain = GainOf({.model = model, .reads = reads}, strategy);
        std::printf("%.2f (%s) | ", gain.Ratio(), LayoutName(gain.shared.tp).c_str());
      }
    }
    std::printf("1.07-1.09, 1.27-1.32 |\n");
  }
}

void PrintShares() {
  std::printf(
      "\n### Figure 15: share of steps in WaS, Llama-3.1-70B on H20, S = 4K\n\n"
      "| TP x DP | reads | steps in WaS | switches | paper (DP 8) |\n|---|---|---|---|---|\n");
  for (const int64_t tp : {1, 2, 4}) {
    for (const Reads reads : {Reads::kModel, Reads::kPaper}) {
      const auto job = BestJob({.reads = reads}, tp, OfflineStrategy::kSwitched);
      if (!job.has_value()) continue;
      std::printf("| %s | %s | %.1f %% | %d | above 90 %% |\n", LayoutName(tp).c_str(),
                  reads == Reads::kModel ? "model" : "paper's", 100 * (1 - job->CasShare()),
                  static_cast<int>(job->switches));
    }
  }
}

}  // namespace skein::bench
