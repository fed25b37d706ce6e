// Rotary position settings of config.json: `rope_theta` + `rope_scaling` (its kind under
// "rope_type" or the older "type"), or the newer `rope_parameters` that holds both.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace skein::engine {

enum class RopeKind { kDefault, kLinear, kLlama3, kYarn };

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                     // all but default
  int64_t original_max_positions = 0;      // llama3, yarn
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  std::optional<double> attention_factor;  // yarn: multiplies cos and sin; derived when absent
  double mscale = 0.0;                     // yarn: 0 = absent
  double mscale_all_dim = 0.0;             // yarn: 0 = absent
  bool truncate = true;                    // yarn: whole dimensions as the ramp's ends
};

// `config` is the whole config.json; `max_positions` its max_position_embeddings. INVALID_ARGUMENT
// names the field and value: other kinds (dynamic, longrope, …), a partial rotary factor, per-layer
// settings, impossible numbers.
absl::StatusOr<RopeConfig> ParseRopeConfig(const nlohmann::json& config, int64_t max_positions);

// How many positions a model has whose max_position_embeddings is `max_positions`: yarn extends
// them, because in many files max_position_embeddings is still the length before scaling.
int64_t ExtendedPositions(const RopeConfig& rope, int64_t max_positions);

}  // namespace skein::engine
