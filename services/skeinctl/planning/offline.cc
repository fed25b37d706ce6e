#include "services/skeinctl/planning/offline.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/skeinctl/command.h"
#include "services/skeinctl/planning/offline_inputs.h"

namespace skein::services {
namespace {

using scheduler::Batching;
using scheduler::OfflineJob;
using scheduler::OfflineProfile;
using scheduler::OfflineRequest;
using scheduler::OfflineStrategy;
using scheduler::SharedSteps;
using scheduler::SlotBytes;

constexpr std::pair<const char*, OfflineStrategy> kStrategies[] = {
    {"full", OfflineStrategy::kFull},
    {"was", OfflineStrategy::kWas},
    {"cas", OfflineStrategy::kCas},
    {"sidp", OfflineStrategy::kSwitched},
};

// What all rows share.
struct Inputs {
  scheduler::OfflineModel model;
  LoadedDevice device;
  std::vector<OfflineRequest> requests;
  int64_t context = 0;

  OfflineProfile Profile(const OfflineFlags& flags, int64_t tp) const {
    const double share = device.is_step_profile ? 1 : flags.memory_share;
    return MakeOfflineProfile(model, device.device, share, tp);
  }
};

absl::StatusOr<Inputs> LoadInputs(const OfflineFlags& flags) {
  auto model = LoadOfflineModel(flags.model);
  if (!model.ok()) return model.status();
  auto device = LoadOfflineDevice(flags.device);
  if (!device.ok()) return device.status();
  if (!flags.link.empty()) {
    const auto link = ParseOfflineLink(flags.link);
    if (!link.ok()) return link.status();
    device->device.peaks.link_bytes_per_s = *link;
  }
  absl::Status load = CheckOfflineLoad(flags.load);
  if (!load.ok()) return load;
  Inputs inputs = {*std::move(model), *std::move(device), GenerateOfflineLoad(flags.load)};
  inputs.context = static_cast<int64_t>(flags.load.prompt_mean + flags.load.output_mean / 2);
  return inputs;
}

// {tp, dp} of all devices; of --tp and --dp where they are given.
absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> LayoutsOf(const OfflineFlags& flags,
                                                                   int64_t devices,
                                                                   int64_t kv_heads) {
  if (flags.tp > kv_heads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tp: ", flags.tp, " is above the model's ", kv_heads, " KV heads"));
  }
  if (flags.tp > 0 && flags.dp > 0) return std::vector{std::pair(flags.tp, flags.dp)};
  std::vector<std::pair<int64_t, int64_t>> layouts;
  for (int64_t tp = 1; tp <= std::min(devices, kv_heads); tp *= 2) {
    if (devices % tp != 0) continue;
    if (flags.tp > 0 && tp != flags.tp) continue;
    if (flags.dp > 0 && devices / tp != flags.dp) continue;
    layouts.emplace_back(tp, devices / tp);
  }
  if (!layouts.empty()) return layouts;
  return absl::InvalidArgumentError(
      absl::StrCat(flags.tp > 0 ? "--tp" : "--dp", ": ", flags.tp > 0 ? flags.tp : flags.dp,
                   " does not divide --devices ", devices,
                   " so that TP is a power of two; give both --tp and --dp, or another number"));
}

// The better of the two batching rules (section 5.1).
void RunJob(SharedSteps* steps, OfflineJob job, const std::vector<OfflineRequest>& requests,
            OfflineRow* row) {
  const absl::Status fits = CheckOfflineJob(steps->profile(), steps->ranks(), job, requests);
  if (!fits.ok()) {
    row->refused = std::string(fits.message());
    return;
  }
  for (const Batching batching : {Batching::kFixed, Batching::kAdaptive}) {
    job.batching = batching;
    const scheduler::OfflineJobResult result = RunOfflineJob(steps, job, requests);
    if (!row->batching.empty() && result.seconds >= row->job.seconds) continue;
    row->batching = batching == Batching::kFixed ? "fixed" : "adaptive";
    row->job = result;
  }
}

double StepSeconds(SharedSteps* steps, OfflineStrategy strategy, int64_t batch, int64_t context,
                   int64_t threshold) {
  const scheduler::StepWork work = scheduler::DecodeWork(batch, context);
  const bool is_cas = strategy == OfflineStrategy::kCas ||
                      (strategy == OfflineStrategy::kSwitched && batch < threshold);
  if (strategy == OfflineStrategy::kFull) return steps->FullSeconds(work);
  if (!is_cas) return steps->WasSeconds(work);
  return steps->CasSeconds(
      std::vector<scheduler::StepWork>(static_cast<size_t>(steps->ranks()), work));
}

OfflineRow RowOf(const OfflineFlags& flags, const Inputs& inputs, SharedSteps* steps,
                 const std::pair<const char*, OfflineStrategy>& strategy) {
  const bool is_full = strategy.second == OfflineStrategy::kFull;
  const scheduler::StepProfile& step = steps->profile().step;
  OfflineRow row = {.strategy = strategy.first, .tp = step.base_devices, .dp = steps->ranks()};
  const auto layers = SharedMemory(step, row.dp, SlotBytes::kLayers);
  const auto tiles = SharedMemory(step, row.dp, SlotBytes::kTiles);
  const auto full = FullMemory(step, row.dp);
  const SlotBytes slots = flags.slots == "layers" ? SlotBytes::kLayers : SlotBytes::kTiles;
  row.memory = is_full ? full : slots == SlotBytes::kLayers ? layers : tiles;
  row.kv_tokens_layers = is_full ? full.kv_tokens : layers.kv_tokens;
  row.kv_tokens_tiles = is_full ? full.kv_tokens : tiles.kv_tokens;
  int64_t threshold = 0;
  if (!is_full) {
    threshold = steps->Threshold(inputs.context);
    if (threshold < SharedSteps::kNoThreshold) row.threshold = threshold;
  }
  row.step_s = StepSeconds(steps, strategy.second, flags.batch, inputs.context, threshold);
  const OfflineJob job = {.strategy = strategy.second,
                          .slots = slots,
                          .step_tokens = flags.step_tokens,
                          .threshold = threshold,
                          .hysteresis = flags.hysteresis};
  RunJob(steps, job, inputs.requests, &row);
  return row;
}

}  // namespace

void OfflineFlags::Register(FlagSet* set) {
  constexpr double kTokens = 1e7;
  set->Group("Offline jobs");
  set->Bool(&offline, "offline",
            "Simulate a job whose requests are all there when it begins, with all weights at each "
            "instance (DP, TP, both) and with shared weights (SiDP). Of the flags above only "
            "--devices, --requests, --seed and --format count.");
  set->String(&model, "model",
              "Model: qwen3-32b, qwen2.5-72b, llama-3.1-70b, or a config.json of Hugging Face.")
      .Value("MODEL");
  set->String(
         &device, "device",
         "Device: h20, h200, b200, or a step profile (see --aggregated), of which the device's "
         "numbers count.")
      .Value("DEVICE");
  set->String(&link, "link",
              "Link between the devices: nvlink4, nvlink5, pcie5, or GB/s in one direction.")
      .Value("LINK")
      .Default("the device's");
  set->Double(&memory_share, "memory-share",
              "Share of a device's memory for weights and KV; a step profile has its own number.",
              0.01, 1);
  set->Int(&tp, "tp",
           "Devices of an instance, in TP, at most the model's KV heads; 0: each power of two that "
           "divides --devices.",
           0, 1 << 16);
  set->Int(&dp, "dp", "Instances, which share weights with SiDP; 0: --devices over --tp.", 0,
           1 << 16);
  set->String(&slots, "slots",
              "Memory for weights that are read: room for as many layers as there are other "
              "instances (layers; SiDP, section 4.2), or at most 1 GiB a device (tiles; 4.4).")
      .Value("READING")
      .OneOf({"layers", "tiles"});
  set->String(
         &reads, "reads",
         "Reads of weights wait for a free slot, and share an owner's link (slots), or neither: "
         "then a step takes the longer of its computation and of all its reads (unhindered).")
      .Value("HOW")
      .OneOf({"slots", "unhindered"});
  set->Int(&batch, "batch", "Sequences of each instance in the step whose time is printed.", 1,
           1 << 20);
  set->Double(&load.prompt_mean, "prompt-tokens-mean", "Mean length of a prompt.", 1, kTokens);
  set->Double(&load.output_mean, "output-tokens-mean", "Mean length of an output.", 1, kTokens);
  set->Double(&load.sigma, "length-sigma",
              "Standard deviation of the logarithm of an output's length (log-normal), half of it "
              "for prompts; 0: all are alike.",
              0, 3);
  set->Int(&step_tokens, "offline-step-tokens", "Most tokens of a step, of prompts and of decode.",
           1, 1 << 20);
  set->Double(&hysteresis, "hysteresis",
              "WaS and CaS change places this share below and above the threshold.", 0, 0.9);
}

absl::StatusOr<OfflineComparison> CompareOffline(const OfflineFlags& flags, int64_t devices) {
  const auto inputs = LoadInputs(flags);
  if (!inputs.ok()) return inputs.status();
  const auto layouts = LayoutsOf(flags, devices, inputs->model.shape.kv_heads);
  if (!layouts.ok()) return layouts.status();
  OfflineComparison comparison = {.model = inputs->model.name,
                                  .device = inputs->device.device.name,
                                  .link_bytes_per_s = inputs->device.device.peaks.link_bytes_per_s,
                                  .batch = flags.batch,
                                  .context = inputs->context,
                                  .load = flags.load};
  for (const auto& layout : *layouts) {
    const OfflineProfile profile = inputs->Profile(flags, layout.first);
    absl::Status valid = CheckOfflineProfile(profile);
    if (!valid.ok()) return valid;
    SharedSteps steps(profile, {.ranks = layout.second, .unhindered = flags.reads == "unhindered"});
    for (const auto& strategy : kStrategies) {
      if (layout.second == 1 && strategy.second != OfflineStrategy::kFull) continue;
      comparison.rows.push_back(RowOf(flags, *inputs, &steps, strategy));
    }
  }
  return comparison;
}

int RunOffline(const OfflineFlags& given, int64_t devices, int64_t requests, int64_t seed,
               const std::string& format) {
  OfflineFlags flags = given;
  if (requests > 0) flags.load.requests = requests;
  flags.load.seed = static_cast<uint64_t>(seed);
  const auto comparison = CompareOffline(flags, devices);
  if (!comparison.ok()) return PrintErrors("skeinctl simulate", comparison.status(), kUsage);
  std::fputs((format == "json" ? OfflineJsonLines(*comparison) : OfflineTable(*comparison)).c_str(),
             stdout);
  return kDone;
}

}  // namespace skein::services
