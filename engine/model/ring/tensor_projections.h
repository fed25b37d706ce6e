// TensorProjections: the products around attention (q, k, v and o) of a ring step whose tensor
// groups share them (RingStep::tp > 1). Each rank multiplies the rows of all ranks of its tensor
// group by its heads' weights; attention itself stays with the rows' owner, who has all heads.
//
// All ranks of a tensor group make the same calls, with rows or without.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/load/weights.h"
#include "engine/model/ring/tensor_rows.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

class TensorProjections {
 public:
  // All outlive this.
  TensorProjections(const Model* model, TensorRows* tensor, RunState* state);

  // TensorRows::KeepLogitRows.
  bool KeepLogitRows() { return tensor_.KeepLogitRows(); }

  // The following take the first `rows` rows of the state, which are this rank's, and slices of the
  // layer's weights. Errors are the communicator's.

  // state.query, key and value = the products of state.normed.
  absl::Status MakeAll(const LayerWeights& w, int64_t rows);
  absl::Status MakeKeys(const LayerWeights& w, int64_t rows);  // and values
  absl::Status MakeQueries(const LayerWeights& w, int64_t rows);

  // state.projected = the projection of state.attention.
  absl::Status Project(const LayerWeights& w, int64_t rows);

 private:
  // A product whose columns return to the rows' owners.
  struct Part {
    const Linear& linear;
    Matrix own;                              // all columns of this rank's rows
    const std::vector<ShardRange>& columns;  // those of each rank
  };

  absl::Status Multiply(const std::vector<Part>& parts, int64_t rows);

  const Model& model_;
  TensorRows& tensor_;
  RunState& state_;
  std::vector<ShardRange> query_columns_, key_columns_;  // by rank of the tensor group
};

}  // namespace skein::engine
