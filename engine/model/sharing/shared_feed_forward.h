// SharedFeedForward: the feed-forward part of a rank that shares its weights. In WaS it is computed
// here, from slots; in CaS by the layer's owner, or from slots where the owner cannot be called or
// does not answer, and where a step has more rows than a call takes (slices of prompts, whose rows
// are worth the weights). Either way a layer gets the same numbers.
#pragma once

#include "engine/model/layers/layer_loop.h"
#include "engine/model/layers/local_feed_forward.h"
#include "engine/model/sharing/compute_calls.h"
#include "engine/model/sharing/weight_owners.h"

namespace skein::engine {

class SharedFeedForward final : public FeedForwardPhase {
 public:
  // `calls`: null in WaS. All outlive this.
  SharedFeedForward(const Model* model, RunState* state, WeightOwners owners, int64_t call_rows_max,
                    ComputeCalls* calls)
      : model_(*model),
        state_(*state),
        owners_(owners),
        call_rows_max_(call_rows_max),
        calls_(calls),
        local_(model, state) {}

  absl::Status Run(const LayerWeights& w, WeightSource& weights, int layer,
                   const Batch& rows) override;

 private:
  const Model& model_;
  RunState& state_;
  const WeightOwners owners_;
  const int64_t call_rows_max_;
  ComputeCalls* const calls_;
  LocalFeedForward local_;
};

}  // namespace skein::engine
