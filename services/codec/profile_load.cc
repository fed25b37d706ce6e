// Profiles by name or path.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/latency/builtin_models.h"
#include "services/base/file.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

Profile Builtin8b() {
  return {"LLaMA3-8B",  "A100-SXM4-80GB", "2025", scheduler::Llama3_8bA100(),
          std::nullopt, std::nullopt};
}

// Decode instances of four A100 as well (Tetris, section 7.1). A GPU reads its fourth of 141 GB of
// weights, and of 320 KiB of KV a token, at 1.5 TB/s, as DecodeOptions assumes of 8B; 4.7 ms of a
// step are software, as there. 37 GB of each GPU are left for KV.
Profile Builtin70b() {
  constexpr double kWeightsS = 141e9 / 4 / 1.5e12;
  Profile profile{"LLaMA3-70B", "4 x A100-SXM4-80GB", "2026", scheduler::Llama3_70bA100Tp4(),
                  std::nullopt, std::nullopt};
  profile.base_devices = 4;
  profile.decode = scheduler::DecodeOptions{.blocks = 28'000,
                                            .block_tokens = 16,
                                            .step_base_s = 4.7e-3 + kWeightsS,
                                            .step_per_sequence_s = 2e-5,
                                            .step_per_kv_token_s = 327'680 / 4 / 1.5e12,
                                            .step_weights_s = kWeightsS,
                                            .prefill_instances = 1};
  return profile;
}

}  // namespace

absl::StatusOr<scheduler::LatencyModel> WithinNodes(const scheduler::LatencyModel& model,
                                                    int node_size, const std::string& prefill_tp) {
  scheduler::ShapeLimits limits{.tp_max = node_size};
  if (prefill_tp == "auto") return model.Within(limits);
  for (const int tp : {1, 2, 4, 8}) {
    if (prefill_tp == absl::StrCat(tp)) limits.pinned_tp = tp;
  }
  if (limits.pinned_tp > 0) return model.Within(limits);
  return absl::InvalidArgumentError(absl::StrCat("'", prefill_tp, "' is not auto, 1, 2, 4 or 8"));
}

absl::StatusOr<Profile> LoadProfile(const std::string& name_or_path) {
  if (name_or_path == "llama3-8b-a100") return Builtin8b();
  if (name_or_path == "llama3-70b-a100-tp4") return Builtin70b();
  const auto text = ReadFile(name_or_path);
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat(
        "'", name_or_path,
        "' is neither a built-in profile (llama3-8b-a100, llama3-70b-a100-tp4) nor a file"));
  }
  auto profile = ParseProfile(*text);
  if (profile.ok()) return profile;
  const std::string why(profile.status().message());
  return absl::Status(profile.status().code(), absl::StrCat("'", name_or_path, "': ", why));
}

absl::StatusOr<Profile> LoadLatencyProfile(const std::string& name_or_path) {
  auto profile = LoadProfile(name_or_path);
  if (!profile.ok() || profile->latency.has_value()) return profile;
  return absl::InvalidArgumentError(absl::StrCat("'", name_or_path, "': sp is missing"));
}

}  // namespace skein::services
