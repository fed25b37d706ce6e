// The buffers of group steps, made with the model so that its KV pool can take what they leave.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/base/tensor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/device/device.h"
#include "engine/model/forward/run_state.h"

namespace skein::engine {

// The buffers that a group step writes besides RunState. T, R, V and act as there, P ≤ ranks_max, N
// = T + ranks_max rows at most, Q and W the widest row of one rank's heads (at P = 2).
struct GroupBuffers {
  Matrix send;      // f32 [N, W]  q k v of own tokens, by receiver
  Matrix receive;   // f32 [N, W]  q k v of all tokens, this rank's heads
  Matrix returned;  // act [N, Q]  heads' outputs of own tokens, by sender
  Matrix joined;    // act [N, Q]  the same by token: [own, sp * Q]
  Matrix logits;    // f32 [R * P, ceil(V / P)]  slices, by rank

  std::vector<DeviceBuffer> owned;
};

// `ranks_max`: of the largest group, at least 2. RESOURCE_EXHAUSTED when the device has not the
// memory.
absl::StatusOr<GroupBuffers> AllocateGroupBuffers(const ModelConfig& config, DType activation,
                                                  int64_t tokens_max, int64_t logit_rows_max,
                                                  int ranks_max, Device* device);

}  // namespace skein::engine
