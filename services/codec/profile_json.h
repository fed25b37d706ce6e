// Latency profiles and improvement-rate tables as JSON, and latency samples as CSV. The formats are
// written down here; scheduler/ holds what they mean.
//
// A profile:
//   {"model": "…", "device": "…", "date": "2026-11-21",
//    "sp": {"1": {"a_s": …, "b_s_per_token": …, "c_s_per_token2": …, "d_s_per_token2": …}, …},
//    "improvement_rates": [{"requests_per_s": 0.5, "improvement_rate": 0.05}, …],
//    "rolling": [{"requests_per_s": 0.5, "price": …, "slack": …, "stretch": …,
//                 "waiting_weight": …, "calm_s": …, "commit": "tetris", "improvement_rate": 0.05},
//                …]}
// "improvement_rates" and "rolling" may be missing, and so may "model", "device" and "date"; any
// other key, and a missing number, is an error. Of a row of "rolling", "commit" (tetris, single or
// fixedN) may be missing; "improvement_rate" stands only beside "commit": tetris or single.
//
// Samples: a header line with the columns sp, history_tokens, chunk_tokens and seconds in any order
// (further columns are ignored), then one line a sample. Empty lines and lines that begin with #
// are skipped. "history_tokens" may be missing; it is 0 then.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/improvement_rate.h"
#include "scheduler/plan/latency/fit.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/rolling/rolling_table.h"

namespace skein::services {

struct Profile {
  std::string model;
  std::string device;
  std::string date;
  scheduler::LatencyModel latency;
  std::optional<scheduler::ImprovementRateTable> improvement_rates;
  std::optional<scheduler::RollingTable> rolling;
};

// All errors are INVALID_ARGUMENT and name the field, or the line, and the value.
absl::StatusOr<Profile> ParseProfile(std::string_view json);
std::string ProfileJson(const Profile& profile);  // indented, ends with a newline
absl::StatusOr<std::vector<scheduler::LatencySample>> ParseSamples(std::string_view csv);

// The built-in profile of this name ("llama3-8b-a100"), or else the file of this path. NOT_FOUND
// when it is neither.
absl::StatusOr<Profile> LoadProfile(const std::string& name_or_path);

}  // namespace skein::services
