#include "bench/offline/tables.h"

#include <cstdio>
#include <map>
#include <vector>

namespace skein::bench {

using scheduler::Batching;
using scheduler::OfflineJob;
using scheduler::OfflineJobResult;
using scheduler::OfflineProfile;
using scheduler::OfflineRequest;
using scheduler::OfflineStrategy;
using scheduler::SharedSteps;

namespace {

constexpr int64_t kDevices = 8;

// Not in the paper: how many requests there are, and how their lengths are distributed.
const std::vector<OfflineRequest>& RequestsOf(int64_t tokens) {
  static auto* const kAll = new std::map<int64_t, std::vector<OfflineRequest>>;
  std::vector<OfflineRequest>& requests = (*kAll)[tokens];
  if (requests.empty()) {
    const auto mean = static_cast<double>(tokens);
    requests = scheduler::GenerateOfflineLoad(
        {.requests = 8000, .prompt_mean = 0.25 * mean, .output_mean = 0.75 * mean, .sigma = 0.5});
  }
  return requests;
}

}  // namespace

void PrintBesideHead(const char* title) {
  std::printf("\n### %s\n\n| what | paper | ours | ours / paper |\n|---|---|---|---|\n", title);
}

void PrintBeside(const std::string& what, std::optional<double> paper, double ours) {
  if (paper.has_value()) {
    std::printf("| %s | %.4g | %.3g | %.2f |\n", what.c_str(), *paper, ours, ours / *paper);
  } else {
    std::printf("| %s | - | %.3g | - |\n", what.c_str(), ours);
  }
}

OfflineProfile OfflineProfileOf(const char* model, const char* device, int64_t tp,
                                double memory_share) {
  return MakeOfflineProfile(*scheduler::FindOfflineModel(model),
                            *scheduler::FindOfflineDevice(device), memory_share, tp);
}

std::optional<OfflineJobResult> BestJob(const JobSetting& setting, int64_t tp,
                                        OfflineStrategy strategy) {
  OfflineProfile profile =
      OfflineProfileOf(setting.model, setting.device, tp, setting.memory_share);
  const bool is_paper = setting.reads == Reads::kPaper;
  if (is_paper && strategy != OfflineStrategy::kFull) profile.step.peaks.link_bytes_per_s *= 2;
  SharedSteps steps(profile, {.ranks = kDevices / tp, .unhindered = is_paper});
  const std::vector<OfflineRequest>& requests = RequestsOf(setting.tokens);
  OfflineJob job = {.strategy = strategy};
  if (!CheckOfflineJob(profile, kDevices / tp, job, requests).ok()) return std::nullopt;
  if (strategy == OfflineStrategy::kSwitched) {
    job.threshold = steps.Threshold(setting.tokens * 5 / 8);  // the mean context in decode
  }
  std::optional<OfflineJobResult> best;
  for (const Batching batching : {Batching::kFixed, Batching::kAdaptive}) {
    job.batching = batching;
    const OfflineJobResult result = RunOfflineJob(&steps, job, requests);
    if (!best.has_value() || result.seconds < best->seconds) best = result;
  }
  return best;
}

std::optional<BestLayout> BestOf(const JobSetting& setting, OfflineStrategy strategy,
                                 std::initializer_list<int64_t> sizes) {
  std::optional<BestLayout> best;
  for (const int64_t tp : sizes) {
    const auto job = BestJob(setting, tp, strategy);
    if (!job.has_value() || (best.has_value() && best->job.seconds <= job->seconds)) continue;
    best = BestLayout{tp, *job};
  }
  return best;
}

}  // namespace skein::bench
