// The time of a prompt's chunk on the instances of one node, as (SP, TP), from the peaks of their
// device; and the latency model with tensor shapes that it gives. No such times are published.
//
// n ranks deal the chunk's tokens. A rank's step is the sum of
//   products    of its rows: the larger of the time to compute them and the time to read the
//               weights; of the parts that tensor groups share, a rank reads 1 / tp of the weights
//   attention   computing 1 / n of the pairs
//   ring        n - 1 exchanges a layer, whose bytes pass behind attention
//   exchanges   of a tensor group, a layer: two for the feed-forward part, four for the products
//               around attention; what a rank gets of the other tp - 1 (rows in bf16, sums and
//               columns in f32; engine/model/ring/tensor_rows.h)
// They do not overlap, and there is no software beyond them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

struct PrefillDerivation {
  double exchange_s = 0;           // of one exchange among devices of a node, without bytes
  bool shares_projections = true;  // or tensor groups share the feed-forward part alone
};

// REQUIRES CheckStepProfile(profile).ok(), an instance of one device (base_devices), tp a power of
// two that divides `ranks`, and tokens > 0.
double PrefillSeconds(const StepProfile& profile, const PrefillDerivation& derivation, int ranks,
                      int tp, int64_t history, int64_t tokens);

struct DerivedLatency {
  LatencyModel latency;      // of 1, 2, 4 … ranks, with all tensor shapes
  double worst_error = 0;    // relative, of any shape at any sample
  TensorShape worst_shape;   // where that is
  int64_t worst_tokens = 0;  // likewise
};
// Equation 1, fitted (FitLatency) to PrefillSeconds of each shape at 64, 128 … 2^17 tokens without
// history. Its straight line meets the bend between reading and computing only roughly. REQUIRES
// the same of the profile. Errors are FitLatency's, with the shape.
absl::StatusOr<DerivedLatency> DeriveLatency(const StepProfile& profile,
                                             const PrefillDerivation& derivation, int ranks_max);

}  // namespace skein::scheduler
