// A second, independent definition of the models: one sequence, no paging, no batching, no Ops, all
// in f64, its own reading of config.json. What ModelEngine computes is held to this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/tensor_store.h"
#include "nlohmann/json_fwd.hpp"

namespace skein::engine {

// Raw logits [ids.size()][vocab] of the checkpoint in `model_dir`. Aborts on a broken checkpoint.
std::vector<std::vector<double>> SlowForward(const std::string& model_dir,
                                             const std::vector<int32_t>& ids);

// Mean negative log-likelihood, in nats, of ids[1 …] under those logits.
double SlowNll(const std::vector<std::vector<double>>& logits, const std::vector<int32_t>& ids);

// Rotation of pair i at one position, from the formulas as transformers writes them (wave lengths,
// correction ranges), on the config's JSON.
double SlowInverseFrequency(const nlohmann::json& config, int head_dim, int pair);
double SlowAttentionFactor(const nlohmann::json& config);

}  // namespace skein::engine
