#include "bench/offline/sidp_points.h"

#include <string>

#include "scheduler/simulator/offline/decode_iteration.h"
#include "scheduler/simulator/offline/weight_memory.h"

namespace skein::bench {
namespace {

using scheduler::DecodeWork;
using scheduler::OfflineProfile;
using scheduler::StepProfile;
using scheduler::StepTime;
using scheduler::TpLayout;

constexpr int64_t kContext = 1024;  // S = 1K
// Section 5.4: full weights take 12 s / 1.12, because CaS V3 is 12 % slower at B = 1 (section 5.3).
constexpr double kFullSeconds = 12 / 1.12;

StepProfile With(const StepProfile& device, const char* model, int64_t base_devices) {
  StepProfile profile = device;
  profile.shape = scheduler::FindOfflineModel(model)->shape;
  profile.base_devices = base_devices;
  return profile;
}

double DecodeSeconds(const StepProfile& profile, int64_t batch) {
  return StepTime(profile, TpLayout(profile, 1), DecodeWork(batch, kContext)).Total();
}

// Sequences per second of 8 instances, `over` sequences of all over `under`.
double Gain(const StepProfile& device, int64_t over, int64_t under) {
  const StepProfile qwen = With(device, "qwen3-32b", 1);
  const auto rate = [&](int64_t all) {
    return static_cast<double>(all) / DecodeSeconds(qwen, all / 8);
  };
  return rate(over) / rate(under);
}

double OverFetch(const StepProfile& device, int64_t batch) {
  const StepProfile llama = With(device, "llama-3.1-70b", 2);
  return DecodeSeconds(llama, batch) / PaperFetchSeconds(llama);
}

double GatheredOverFull(const StepProfile& device) {
  OfflineProfile profile;
  profile.step = With(device, "llama-3.1-70b", 2);
  const scheduler::SharedSteps steps(profile, {.ranks = 2});
  return steps.GatheredSeconds(DecodeWork(1, kContext)) / DecodeSeconds(profile.step, 1);
}

PaperPoint Fetched(int64_t batch, double paper, double weight) {
  return {.what = "Llama-3.1-70B, TP 2: T(B = " + std::to_string(batch) + ") / fetch of all",
          .source = "section 5.3",
          .paper = paper,
          .weight = weight,
          .ours = [batch](const StepProfile& device) { return OverFetch(device, batch); }};
}

// Where the fit begins: what it does not change is the built-in device's.
StepProfile Start(const char* name) {
  const scheduler::OfflineDevice& device = *scheduler::FindOfflineDevice(name);
  StepProfile profile;
  profile.name = name;
  profile.peaks = device.peaks;
  profile.fitted = device.fitted;
  profile.fitted.compute_share = 0.8;
  profile.fitted.step_s = 5e-3;
  profile.fitted.sequence_s = 20e-6;
  return profile;
}

}  // namespace

double PaperFetchSeconds(const StepProfile& profile) {
  return scheduler::FeedForwardBytes(profile) / static_cast<double>(profile.base_devices) /
         (2 * profile.peaks.link_bytes_per_s);
}

const std::vector<PaperPoint>& H20Points() {
  static const auto* const kPoints = new std::vector<PaperPoint>{
      {.what = "Qwen3-32B, DP 8: throughput of B = 1,024 over 64",
       .source = "section 3.1",
       .paper = 4,
       .ours = [](const StepProfile& device) { return Gain(device, 1024, 64); }},
      {.what = "Qwen3-32B, DP 8: throughput of B = 1,536 over 1,024",
       .source = "section 3.1",
       .paper = 1.06,
       .ours = [](const StepProfile& device) { return Gain(device, 1536, 1024); }},
      Fetched(256, 3, 1),
      Fetched(512, 5, 1),
      {.what = "Llama-3.1-70B, TP 2 x DP 2, B = 1: FSDP over full weights",
       .source = "section 5.4",
       .paper = 33 / kFullSeconds,
       .weight = 0,
       .ours = GatheredOverFull}};
  return *kPoints;
}

const std::vector<PaperPoint>& H200Points() {
  static const auto* const kPoints =
      new std::vector<PaperPoint>{Fetched(256, 1.05, 1), Fetched(512, 1.8, 1)};
  return *kPoints;
}

const std::vector<PaperPoint>& B200Points() {
  static const auto* const kPoints = new std::vector<PaperPoint>{Fetched(256, 1, 1)};
  return *kPoints;
}

std::vector<StepProfile> FitDevices() {
  using Fitted = StepProfile::Fitted;
  const FreeNumber compute = {"compute_share", &Fitted::compute_share, 0.3, 0.95};
  const std::vector<FreeNumber> with_software = {compute,
                                                 {"step_s", &Fitted::step_s, 1e-4, 20e-3},
                                                 {"sequence_s", &Fitted::sequence_s, 1e-7, 100e-6}};
  const StepProfile h20 = Fit(H20Points(), with_software, Start("h20"));
  const auto with_h20_software = [&](const char* name) {
    StepProfile profile = Start(name);
    profile.fitted.step_s = h20.fitted.step_s;
    profile.fitted.sequence_s = h20.fitted.sequence_s;
    return profile;
  };
  return {h20, Fit(H200Points(), {compute}, with_h20_software("h200")),
          Fit(B200Points(), {compute}, with_h20_software("b200"))};
}

}  // namespace skein::bench
