// Step profiles as JSON (scheduler/simulator/formations/step_time.h defines their meaning):
//   {"name": "…", "model": "…", "device": "…", "base_devices": 2,
//    "shape": {"layers": …, "hidden": …, "heads": …, "kv_heads": …, "head_dim": …,
//              "intermediate": …, "vocabulary": …, "bytes_per_weight": …, "bytes_per_kv_value": …},
//    "peaks": {"flops_per_s": …, "attention_flops_per_s": …, "hbm_bytes_per_s": …,
//              "link_bytes_per_s": …, "usable_bytes": …},
//    "fitted": {"compute_share": …, "attention_share": …, "hbm_share": …, "link_share": …,
//               "collective_s": …, "step_s": …, "sequence_s": …}}
// All are required but the three texts. Any other key is an error.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::services {

// INVALID_ARGUMENT names the field; also when CheckStepProfile refuses it.
absl::StatusOr<scheduler::StepProfile> ParseStepProfile(std::string_view json);
std::string StepProfileJson(const scheduler::StepProfile& profile);  // ends with a newline

// The built-in profile with this name (builtin_step_profiles.h), or the file with this path.
// NOT_FOUND when there is neither.
absl::StatusOr<scheduler::StepProfile> LoadStepProfile(const std::string& name_or_path);

}  // namespace skein::services
