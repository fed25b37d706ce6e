// Marks in a stream's work, by events that are used again: what Device and CopyStream promise of
// Mark and Done.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::engine {

// Thread-safe. REQUIRES for Mark: the stream's device is the calling thread's current CUDA device.
class EventMarks {
 public:
  explicit EventMarks(cudaStream_t stream) : stream_(stream) {}  // Mark needs it, nothing else
  ~EventMarks();
  EventMarks(const EventMarks&) = delete;
  EventMarks& operator=(const EventMarks&) = delete;

  absl::StatusOr<uint64_t> Mark();
  absl::StatusOr<bool> Done(uint64_t mark);

 private:
  struct Marked {
    uint64_t mark = 0;
    cudaEvent_t event = nullptr;
  };

  // Takes back the events up to `mark` that are over.
  absl::Status Look(uint64_t mark);

  const cudaStream_t stream_;
  std::mutex mu_;
  std::deque<Marked> marked_;
  std::vector<cudaEvent_t> spare_;
  uint64_t last_mark_ = 0;
  uint64_t done_ = 0;
};

}  // namespace skein::engine
