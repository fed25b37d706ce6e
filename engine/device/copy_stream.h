// CopyStream: copies between a device's memory and the host's, beside the device's other work.
// Implementations: cuda, and the far device of tests (far_device.h).
//
// Copies run in the order in which they were queued, later than the call that queued them, and are
// not ordered with the work of the device's own stream: who reads what a kernel wrote has waited
// for the kernel first, and a kernel that reads what was copied is started after Done said so.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::engine {

class CopyStream {
 public:
  virtual ~CopyStream() = default;  // waits for what was queued

  // Whether `pointer` lies in memory of a device, which the host reaches by Copy alone.
  virtual bool IsDevice(const void* pointer) const = 0;

  // Memory of the host that copies reach at full speed (page-locked). RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<void*> AllocHost(size_t bytes) = 0;
  virtual void FreeHost(void* pointer, size_t bytes) = 0;  // REQUIRES: no copy uses it

  // Queues a copy; either side may be the device's. Both stay as they are until it is done.
  virtual absl::Status Copy(void* to, const void* from, size_t bytes) = 0;

  // Stands for all copies queued so far, by anybody; grows. 0 stands for none.
  virtual absl::StatusOr<uint64_t> Mark() = 0;
  // Whether they are done. Never waits.
  virtual absl::StatusOr<bool> Done(uint64_t mark) = 0;
};

// Waits until what was queued so far is done. Looks again and again: for copies that take less than
// a sleep.
absl::Status AwaitCopies(CopyStream* copies);

}  // namespace skein::engine
