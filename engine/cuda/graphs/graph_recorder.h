// GraphRecorder: notes work on the device instead of doing it, so that one launch does it again and
// again. Implementations: CUDA's graphs (cuda_graph.h) and, on the emulator, the list of launches.
// Used by one thread.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/simt/stream.h"

namespace skein::engine {

class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;

  // Puts the recorded work on the device's stream, with the arguments that it was recorded with:
  // what may differ from launch to launch lies in device memory.
  virtual absl::Status Launch() = 0;
};

class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;

  // A stream whose work is noted, not done, until End. Until then the calling thread must not
  // allocate, free, copy or wait on the device. Work of other threads goes on as ever.
  virtual absl::StatusOr<CudaStream> Begin() = 0;

  // The work recorded since Begin. REQUIRES: Begin returned a stream.
  virtual absl::StatusOr<std::unique_ptr<RecordedGraph>> End() = 0;
};

}  // namespace skein::engine
