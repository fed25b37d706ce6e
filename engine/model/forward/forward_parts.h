// Small steps of a forward pass that its variants share (alone, ring, in a group). Internal to
// engine/model.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "engine/model/forward/forward.h"

namespace skein::engine {

// out = x · weightᵀ + bias.
struct Projection {
  const Linear& linear;
  Matrix out;
};

// All projections of x, the rows of `batch`, in one call for each run (RunsOf).
void Apply(const Model& model, const Batch& batch, const Matrix& x,
           std::span<const Projection> projections);
inline void Apply(const Model& model, const Batch& batch, const Matrix& x,
                  std::initializer_list<Projection> projections) {
  Apply(model, batch, x, std::span<const Projection>(projections.begin(), projections.size()));
}

// The rows of `batch` that need logits, as a batch of their own: runs of neighbours in one sequence
// stay one span.
Batch LogitBatch(const Batch& batch);

}  // namespace skein::engine
