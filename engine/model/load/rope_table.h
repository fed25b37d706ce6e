// Rotary angles of a model, scaled as transformers' modeling_rope_utils does: linear, llama3 (Llama
// 3.1), yarn (Peng et al. 2023, arXiv 2309.00071).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/checkpoint/rope_config.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// Radians a position adds to pair i, i < head_dim / 2.
std::vector<double> InverseFrequencies(const RopeConfig& rope, int head_dim);

// The factor of cos and sin: 1 for every kind but yarn.
double AttentionFactor(const RopeConfig& rope);

// cos and sin, [positions, head_dim / 2] each, computed in f64 and rounded once.
class RopeAngles {
 public:
  RopeAngles(const RopeConfig& rope, int head_dim, int64_t positions);

  // Gives the memory back; tables are no longer valid.
  void Drop() {
    cos_ = {};
    sin_ = {};
  }

  // Valid while this object lives, until Drop.
  RopeTable table() const { return {cos_.data(), sin_.data(), positions_, head_dim_}; }

 private:
  int head_dim_;
  int64_t positions_;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

}  // namespace skein::engine
