// CUDA's graphs as a GraphRecorder. Work is captured on a stream of its own: the device's stream is
// shared with other threads, whose copies must not end in the graph.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/graphs/graph_recorder.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<GraphRecorder>> MakeCudaGraphRecorder(
    std::shared_ptr<CudaDevice> device);

}  // namespace skein::engine
