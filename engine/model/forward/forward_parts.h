// Small steps of a forward pass that its variants share (alone, ring, in a group). Internal to
// engine/model.
#pragma once

#include <cstdint>

#include "engine/model/forward/forward.h"

namespace skein::engine {

// The rows of one head each: [T, heads * head_dim] as [T * heads, head_dim]. REQUIRES: no gap
// between rows.
Matrix AsHeads(const Matrix& x, int head_dim);

// out = x · weightᵀ + bias, run by run (RunsOf).
void Apply(const Model& model, const Batch& batch, const Matrix& x, const Linear& linear,
           const Matrix& out);

// The rows of `batch` that need logits, as a batch of their own: runs of neighbours in one sequence
// stay one span.
Batch LogitBatch(const Batch& batch);

}  // namespace skein::engine
