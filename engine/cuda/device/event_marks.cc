#include "engine/cuda/device/event_marks.h"

#include "engine/cuda/device/cuda_check.h"

namespace skein::engine {

EventMarks::~EventMarks() {
  for (const Marked& marked : marked_) cudaEventDestroy(marked.event);
  for (cudaEvent_t event : spare_) cudaEventDestroy(event);
}

absl::Status EventMarks::Look(uint64_t mark) {
  while (done_ < mark && !marked_.empty()) {
    const cudaError_t error = cudaEventQuery(marked_.front().event);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();
      return absl::OkStatus();
    }
    const absl::Status status = FromCuda(error, "cudaEventQuery");
    if (!status.ok()) return status;
    done_ = marked_.front().mark;
    spare_.push_back(marked_.front().event);
    marked_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> EventMarks::Mark() {
  const std::lock_guard lock(mu_);
  // Marks that nobody asks for would keep their events.
  absl::Status status = Look(last_mark_);
  cudaEvent_t event = nullptr;
  if (status.ok() && spare_.empty()) {
    status = FromCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  } else if (status.ok()) {
    event = spare_.back();
    spare_.pop_back();
  }
  if (!status.ok()) return status;
  status = FromCuda(cudaEventRecord(event, stream_), "cudaEventRecord");
  if (!status.ok()) {
    spare_.push_back(event);
    return status;
  }
  marked_.push_back({++last_mark_, event});
  return last_mark_;
}

absl::StatusOr<bool> EventMarks::Done(uint64_t mark) {
  const std::lock_guard lock(mu_);
  const absl::Status status = Look(mark);
  if (!status.ok()) return status;
  return done_ >= mark;
}

}  // namespace skein::engine
