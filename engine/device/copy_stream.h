// CopyStream: copies between a device's memory and the host's, beside the device's other work.
// Implementations: cuda, and the far device of tests (far_device.h).
//
// Copies run in the order in which they were queued, later than the call that queued them, and are
// not ordered with the work of the device's own stream: who reads what a kernel wrote has waited
// for the kernel first, and a kernel that reads what was copied is started after Done said so.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::engine {

struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

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

  // The same for pieces that do not overlap and whose sides all lie in memory that the device
  // itself reads and writes: its own, what a PeerOpener opened, or AllocHost's. Many small ones
  // cost little more than one large. After an error some may have been queued.
  virtual absl::Status CopyPieces(std::span<const CopyPiece> pieces) = 0;

  // Stands for all copies queued so far, by anybody; grows. 0 stands for none.
  virtual absl::StatusOr<uint64_t> Mark() = 0;
  // Whether they are done. Never waits.
  virtual absl::StatusOr<bool> Done(uint64_t mark) = 0;
};

// A device that does not end a copy in this time is taken for hung.
inline constexpr std::chrono::seconds kCopyHungAfter{30};

// Waits until Done(mark), or until the copies failed. Looks again and again: for copies that take
// less than a sleep. If the device is hung the process ends with that cause on stderr, as at a
// sticky error of CUDA: nobody could say when the memory is free again.
absl::Status AwaitMark(CopyStream* copies, uint64_t mark,
                       std::chrono::nanoseconds hung_after = kCopyHungAfter);

// The same for what was queued so far.
absl::Status AwaitCopies(CopyStream* copies);

}  // namespace skein::engine
