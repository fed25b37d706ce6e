#include "services/worker/engine/emulated_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/emulated/faulty_engine.h"
#include "nlohmann/json.hpp"
#include "services/base/file.h"
#include "services/base/process.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

constexpr int kMaxPositions = 262144;  // where no model says

// A count of config.json; 0 where there is none.
int CountOf(const nlohmann::json& config, const char* name) {
  const auto it = config.find(name);
  const bool fits = it != config.end() && it->is_number_unsigned() && it->get<uint64_t>() < 1 << 24;
  return fits ? it->get<int>() : 0;
}

absl::Status ApplyModel(const WorkerOptions& options, engine::EmulatedOptions* out) {
  nlohmann::json config = nlohmann::json::object();
  if (!options.model.empty()) {
    const auto text = ReadFile(options.model + "/config.json");
    if (!text.ok()) return text.status();
    config = nlohmann::json::parse(*text, nullptr, false);
    if (!config.is_object()) return absl::InvalidArgumentError("config.json: not a JSON object");
  }
  out->vocab_size = static_cast<int>(options.emulated_vocab_size);
  if (out->vocab_size == 0) out->vocab_size = CountOf(config, "vocab_size");
  if (out->vocab_size == 0) {
    return absl::InvalidArgumentError(
        "--emulated-vocab-size is required, since no --model says it");
  }
  out->max_positions = static_cast<int>(options.max_positions);
  if (out->max_positions == 0) out->max_positions = CountOf(config, "max_position_embeddings");
  if (out->max_positions == 0) out->max_positions = kMaxPositions;
  return absl::OkStatus();
}

absl::Status ApplyKv(const WorkerOptions& options, engine::KvSpec* kv) {
  kv->num_layers = static_cast<int>(options.emulated_layers);
  kv->kv_heads = static_cast<int>(options.emulated_kv_heads);
  kv->head_dim = static_cast<int>(options.emulated_head_dim);
  kv->block_tokens = static_cast<int>(options.block_tokens);
  kv->dtype = engine::DType::kBF16;
  const auto bytes = static_cast<int64_t>(options.kv_gib * (1 << 30));
  kv->num_blocks = bytes / (kv->num_layers * kv->BlockBytes());
  if (kv->num_blocks > 0 && kv->num_blocks < INT32_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-gib: ", options.kv_gib, " GiB are ", kv->num_blocks,
                   " KV blocks, which is not between 1 and ", INT32_MAX));
}

}  // namespace

absl::StatusOr<std::unique_ptr<engine::StepEngine>> MakeEmulatedEngine(
    const WorkerOptions& options, std::shared_ptr<engine::Device> device) {
  if (options.served_name.empty() && options.model.empty()) {
    return absl::InvalidArgumentError("--served-name is required, since there is no --model");
  }
  engine::EmulatedOptions out;
  absl::Status status = ApplyModel(options, &out);
  if (status.ok()) status = ApplyKv(options, &out.kv);
  if (!status.ok()) return status;
  if (!options.profile.empty()) {
    auto profile = LoadProfile(options.profile);
    if (!profile.ok()) return AboutFlag("profile", profile.status());
    if (profile->formations.has_value()) {
      const auto& gains = profile->formations->gains;
      out.times.decode.gains = {gains.begin(), gains.end()};
    }
    if (profile->latency.has_value()) {
      out.times.prefill_s = [latency = *std::move(profile->latency)](
                                int members, int tp, int64_t history, int64_t tokens) {
        return latency.SecondsWith(latency.LargestSizeWithin(members), tp, history, tokens);
      };
    }
  }
  out.times.decode.step_s = static_cast<double>(options.emulated_decode_step_us) * 1e-6;
  out.times.decode.sequence_s = static_cast<double>(options.emulated_decode_sequence_us) * 1e-6;
  out.device = std::move(device);
  auto made = engine::EmulatedEngine::Create(out);
  if (!made.ok()) return made.status();
  const engine::Faults faults{.fail_token = options.emulated_fail_token,
                              .hang_token = options.emulated_hang_token,
                              .nan_token = options.emulated_nan_token};
  if (!faults.any()) return *std::move(made);
  return std::make_unique<engine::FaultyEngine>(*std::move(made), faults);
}

}  // namespace skein::services
