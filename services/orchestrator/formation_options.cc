#include "services/orchestrator/formation_options.h"

#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

scheduler::OwnSequences OwnFrom(std::string_view name) {
  using Own = scheduler::OwnSequences;
  for (const Own own : {Own::kSequential, Own::kSoftPreempt, Own::kHardPreempt}) {
    if (ToString(own) == name) return own;
  }
  return Own::kShare;
}

void ReadProfile(const OrchestratorOptions& options,
                 scheduler::orchestrator::FormationConfig* config) {
  if (options.profile.empty()) return;
  const absl::StatusOr<Profile> profile = LoadProfile(options.profile);
  if (profile.ok() && profile->formations) config->profiles[""] = *profile->formations;
}

}  // namespace

absl::StatusOr<scheduler::orchestrator::FormationConfig> FormationsFrom(
    const OrchestratorOptions& options) {
  scheduler::orchestrator::FormationConfig config;
  config.automatic = options.formations == "auto";
  config.policy.bind_sequences = options.formation_bind_sequences;
  config.policy.release_sequences = options.formation_release_sequences;
  config.policy.release_waiting_tokens = options.formation_release_waiting_tokens;
  config.policy.min_dwell_us = std::llround(options.formation_dwell_s * 1e6);
  config.policy.min_gain = options.formation_min_gain;
  config.policy.dedicated_priority = static_cast<int32_t>(-options.formation_priority);
  config.own = OwnFrom(options.formation_own);
  config.own_for[scheduler::orchestrator::BindReason::kPriority] =
      OwnFrom(options.formation_own_priority);
  config.limits.own_pause_us = std::llround(options.formation_own_pause_s * 1e6);
  config.long_wait_us = std::llround(options.formation_wait_s * 1e6);
  config.policy.share_lines = options.formation_share_lines;
  if (options.shared_batch_threshold > 0) config.shared.threshold = options.shared_batch_threshold;
  config.shared.min_dwell_us = std::llround(options.shared_mode_dwell_s * 1e6);
  const absl::Status status = CheckFormationPolicy(config.policy);
  ReadProfile(options, &config);
  if (status.ok()) return config;
  // The policy names its fields; people know the flags.
  return absl::Status(
      status.code(),
      absl::StrReplaceAll(std::string(status.message()),
                          {{"bind_sequences", "--formation-bind-sequences"},
                           {"release_sequences", "--formation-release-sequences"},
                           {"release_waiting_tokens", "--formation-release-waiting-tokens"},
                           {"min_dwell_us", "--formation-dwell-s"},
                           {"min_gain", "--formation-min-gain"}}));
}

}  // namespace skein::services
