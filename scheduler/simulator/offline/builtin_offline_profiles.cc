// Models, devices and links of SiDP's evaluation ("Memory-Efficient Data Parallelism for Offline
// LLM Inference", section 5.1).
//
// Derived: the models' shapes from their config.json; the peaks from the vendor's data sheets
// (dense bf16, one direction of the link); the memory from the paper's table 1 (144, 144 and 180
// GB). Taken over: attention_share, hbm_share and collective_s, which builtin_step_profiles.cc fits
// to Shift Parallelism's points on H200. A link reaches its peak (link_share 1). Fitted to ratios
// that the paper's prose states (bench/offline:figures --fit, with residuals):
//   H20   compute_share, step_s, sequence_s: section 3.1 (Qwen3-32B at DP 8, S = 1K: 1,024
//   sequences
//         have 4 times the throughput of 64, and 1,536 another 6 %) and section 5.3 (Llama-3.1-70B
//         at TP 2: T(B) over the time to fetch all FFN weights, 3 to 5 at B = 256 and 512)
//   H200  compute_share: section 5.3 (the same ratio: slightly above 1 at B = 256, 1.8 at 512)
//   B200  compute_share: section 5.3 (the same ratio: about 1 at B = 256)
//   all   step_s and sequence_s are H20's; hop_s: section 5.3 (12 % slower than full weights at
//         B = 1); dummy_wait_s: section 5.4 (CaS V2 takes 19 s, V3 12 s)
// The compute shares of H200 and B200 rest on one ratio each, so they are less certain.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/simulator/offline/offline_profile.h"

namespace skein::scheduler {
namespace {

constexpr double kNvlink4 = 450e9;
constexpr double kNvlink5 = 900e9;
constexpr PeerCosts kPeers = {.hop_s = 41e-6, .dummy_wait_s = 180e-6};

StepProfile::Fitted Fitted(double compute_share) {
  return {.compute_share = compute_share,
          .attention_share = 0.75,
          .hbm_share = 0.92,
          .link_share = 1,
          .collective_s = 34.92e-6,
          .step_s = 2.84e-3,
          .sequence_s = 4.05e-6};
}

template <typename Item>
const Item* Find(const std::vector<Item>& all, std::string_view name) {
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const Item& item) { return item.name == name; });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace

const std::vector<OfflineModel>& OfflineModels() {
  static const auto* const kModels = new std::vector<OfflineModel>{
      {.name = "qwen3-32b",
       .shape = {.layers = 64,
                 .hidden = 5120,
                 .heads = 64,
                 .kv_heads = 8,
                 .head_dim = 128,
                 .intermediate = 25600,
                 .vocabulary = 151936}},
      {.name = "qwen2.5-72b",
       .shape = {.layers = 80,
                 .hidden = 8192,
                 .heads = 64,
                 .kv_heads = 8,
                 .head_dim = 128,
                 .intermediate = 29568,
                 .vocabulary = 152064}},
      {.name = "llama-3.1-70b",
       .shape = {.layers = 80,
                 .hidden = 8192,
                 .heads = 64,
                 .kv_heads = 8,
                 .head_dim = 128,
                 .intermediate = 28672,
                 .vocabulary = 128256}},
  };
  return *kModels;
}

const std::vector<OfflineDevice>& OfflineDevices() {
  static const auto* const kDevices = new std::vector<OfflineDevice>{
      {.name = "h20",
       .memory_bytes = 144e9,
       .peaks = {.flops_per_s = 148e12,
                 .attention_flops_per_s = 148e12,
                 .hbm_bytes_per_s = 4.0e12,
                 .link_bytes_per_s = kNvlink4},
       .fitted = Fitted(0.793),
       .peers = kPeers},
      {.name = "h200",
       .memory_bytes = 144e9,
       .peaks = {.flops_per_s = 989.5e12,
                 .attention_flops_per_s = 989.5e12,
                 .hbm_bytes_per_s = 4.8e12,
                 .link_bytes_per_s = kNvlink4},
       .fitted = Fitted(0.426),
       .peers = kPeers},
      {.name = "b200",
       .memory_bytes = 180e9,
       .peaks = {.flops_per_s = 2250e12,
                 .attention_flops_per_s = 2250e12,
                 .hbm_bytes_per_s = 8.0e12,
                 .link_bytes_per_s = kNvlink5},
       .fitted = Fitted(0.518),
       .peers = kPeers},
  };
  return *kDevices;
}

const std::vector<OfflineLink>& OfflineLinks() {
  static const auto* const kLinks =
      new std::vector<OfflineLink>{{"nvlink4", kNvlink4}, {"nvlink5", kNvlink5}, {"pcie5", 64e9}};
  return *kLinks;
}

const OfflineModel* FindOfflineModel(std::string_view name) { return Find(OfflineModels(), name); }
const OfflineDevice* FindOfflineDevice(std::string_view name) {
  return Find(OfflineDevices(), name);
}
const OfflineLink* FindOfflineLink(std::string_view name) { return Find(OfflineLinks(), name); }

OfflineProfile MakeOfflineProfile(const OfflineModel& model, const OfflineDevice& device,
                                  double memory_share, int64_t base_devices) {
  OfflineProfile profile;
  profile.step = {.name = absl::StrCat(model.name, "-", device.name),
                  .model = model.name,
                  .device = device.name,
                  .base_devices = base_devices,
                  .shape = model.shape,
                  .peaks = device.peaks,
                  .fitted = device.fitted};
  profile.step.peaks.usable_bytes = device.memory_bytes * memory_share;
  profile.peers = device.peers;
  return profile;
}

absl::Status CheckOfflineProfile(const OfflineProfile& profile) {
  // CheckStepProfile with room for any weights, so that only the fields are judged.
  StepProfile roomy = profile.step;
  if (roomy.peaks.usable_bytes > 0) roomy.peaks.usable_bytes = 1e18;
  absl::Status status = CheckStepProfile(roomy);
  const std::pair<const char*, double> costs[] = {{"hop_s", profile.peers.hop_s},
                                                  {"dummy_wait_s", profile.peers.dummy_wait_s}};
  for (const auto& [field, value] : costs) {
    if (std::isfinite(value) && value >= 0) continue;
    status.Update(absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is below 0")));
  }
  return status;
}

}  // namespace skein::scheduler
