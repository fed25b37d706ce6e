// Latency profiles and improvement-rate tables as JSON, and latency samples as CSV. This file
// defines the formats; scheduler/ defines their meaning.
//
// A profile:
//   {"model": "…", "device": "…", "date": "2026-11-21",
//    "sp": {"1": {"a_s": …, "b_s_per_token": …, "c_s_per_token2": …, "d_s_per_token2": …}, …},
//    "tensor": [{"instances": 4, "tp": 2, "a_s": …, "b_s_per_token": …, "c_s_per_token2": …,
//                "d_s_per_token2": …}, …],
//    "improvement_rates": [{"requests_per_s": 0.5, "improvement_rate": 0.05}, …],
//    "rolling": [{"requests_per_s": 0.5, "price": …, "slack": …, "stretch": …,
//                 "waiting_weight": …, "calm_s": …, "commit": "tetris", "improvement_rate": 0.05},
//                …],
//    "formations": [{"instances": 4, "gain": 1.6, "shift_tokens": 96, "shift_tp": 2}, …],
//    "shared_batch_threshold": 64,
//    "base_devices": 4,
//    "decode": {"blocks": …, "block_tokens": …, "step_base_s": …, "step_per_sequence_s": …,
//               "step_per_kv_token_s": …, "step_weights_s": …, "prefill_instances": …}}
// "sp" may be missing where there are "formations". Optional: "tensor" (equation 1 for chunks whose
// instances, one of the sizes of "sp", are (instances / tp, tp): LatencyModel's tensor shapes),
// "improvement_rates", "rolling", "formations", "model", "device", "date", "base_devices" (the
// devices of a prefill instance; 1) and "decode" (the decode instances that skeinctl simulate
// assumes, scheduler/simulator/decode_run.h; all of its keys). In a row of "formations", "gain"
// says how many times as fast as one decode instance a bound group of so many makes the tokens of
// few sequences; steps of more tokens than "shift_tokens" (optional) run in the base, SP instances
// / tp x TP tp, where tp is "shift_tp" (optional; 1, pure SP): a power of two below "instances".
// "shared_batch_threshold" (optional) is the batch of an instance from which on instances that
// share their weights are faster in WaS than in CaS. Any other key, or a missing number, is an
// error. In a row of "rolling", "commit" (tetris, single or fixedN) is optional; "improvement_rate"
// is allowed only with "commit": tetris or single.
//
// Samples: a header line with the columns sp, history_tokens, chunk_tokens and seconds in any order
// (other columns are ignored), then one sample per line. Empty lines and lines that begin with #
// are skipped. "history_tokens" defaults to 0.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/orchestrator/groups/formation_config.h"
#include "scheduler/plan/improvement_rate.h"
#include "scheduler/plan/latency/fit.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/rolling/rolling_table.h"
#include "scheduler/simulator/decode_run.h"

namespace skein::services {

struct Profile {
  std::string model;
  std::string device;
  std::string date;
  std::optional<scheduler::LatencyModel> latency;  // empty: prompts cannot be planned with it
  std::optional<scheduler::ImprovementRateTable> improvement_rates;
  std::optional<scheduler::RollingTable> rolling;
  std::optional<scheduler::orchestrator::FormationProfile> formations = {};
  int64_t base_devices = 1;                             // of a prefill instance
  std::optional<scheduler::DecodeOptions> decode = {};  // without the number of instances
};

// All errors are INVALID_ARGUMENT and name the field, or the line, and the value.
absl::StatusOr<Profile> ParseProfile(std::string_view json);
std::string ProfileJson(const Profile& profile);  // indented, ends with a newline
absl::StatusOr<std::vector<scheduler::LatencySample>> ParseSamples(std::string_view csv);

// The model for chunks on nodes of so many instances, with the TP that the flag --prefill-tp says:
// "auto", or 1, 2, 4 or 8. INVALID_ARGUMENT names another value.
absl::StatusOr<scheduler::LatencyModel> WithinNodes(const scheduler::LatencyModel& model,
                                                    int node_size, const std::string& prefill_tp);

// The built-in profile with this name (llama3-8b-a100, llama3-70b-a100-tp4), or the file with this
// path. NOT_FOUND
// when there is neither.
absl::StatusOr<Profile> LoadProfile(const std::string& name_or_path);
// The same; INVALID_ARGUMENT, too, when it has no latency model.
absl::StatusOr<Profile> LoadLatencyProfile(const std::string& name_or_path);

}  // namespace skein::services
