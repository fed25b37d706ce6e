// FarDevice: for tests, a device as far from the host as a GPU can be.
//
// Its memory is not the host's: a pointer that Alloc gave faults (EFAULT in a system call) when
// the host uses it. Its work is not done when it is asked for, but only when a thread waits:
// Synchronize runs all that was queued, and each look (Done) runs one piece of it, of a CopyStream
// one copy. A wait that is missing therefore shows every time, as old bytes, and an access behind
// the device's back as a crash.
//
// Other processes of the host can open its memory (far_peer_opener.h), as far from them.
//
// Copies from the host's memory have read it when Device::Copy returns, as on CUDA; a CopyStream
// reads when the copy runs. Free waits for queued work. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "engine/device/copy_stream.h"
#include "engine/device/device.h"
#include "engine/device/testing/far_view.h"

namespace skein::engine {

class FarDevice : public Device {
 public:
  // `bytes` are all there are.
  explicit FarDevice(size_t bytes);
  ~FarDevice() override;

  absl::StatusOr<void*> Alloc(size_t bytes) override;
  void Free(void* pointer, size_t bytes) override;
  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override;
  absl::Status Synchronize() override;
  absl::StatusOr<uint64_t> Mark() override;
  absl::StatusOr<bool> Done(uint64_t mark) override;
  absl::StatusOr<MemoryUse> MemoryInfo() override;
  bool IsHost() const override { return false; }

  bool Owns(const void* pointer) const { return view_->Owns(pointer); }
  // The memory behind a pointer of the device, for queued work; a pointer of the host stays as it
  // is.
  void* Near(const void* pointer) const {
    return Owns(pointer) ? view_->Near(pointer) : const_cast<void*>(pointer);
  }
  template <typename T>
  T* NearOf(T* pointer) const {
    return static_cast<T*>(Near(pointer));
  }

  // Queues `work` behind all earlier work.
  void Queue(std::function<void()> work);

  const std::byte* Base() const { return view_->far(); }
  // The file behind the memory, and the allocation in it that holds `pointer`. REQUIRES: one does.
  int file() const { return file_; }
  struct Allocation {
    size_t offset = 0;
    size_t bytes = 0;  // whole pages
  };
  Allocation AllocationOf(const void* pointer) const;

 private:
  void RunAll();
  bool RunOne();  // under run_mu_. False: nothing is queued

  const size_t bytes_;
  const int file_;
  std::unique_ptr<FarView> view_;
  mutable std::mutex memory_mu_;
  std::map<size_t, size_t> free_;       // offset -> bytes
  std::map<size_t, size_t> allocated_;  // the same
  std::mutex run_mu_;                   // held while work runs
  std::mutex queue_mu_;
  std::deque<std::function<void()>> queue_;
  uint64_t queued_ = 0;
  std::atomic<uint64_t> done_ = 0;
};

// A copy stream of `device`'s memory, or, of null, one that knows no device.
std::shared_ptr<CopyStream> MakeFarCopyStream(std::shared_ptr<FarDevice> device);

// The same device, for callers that own a Device.
std::unique_ptr<Device> ShareFarDevice(std::shared_ptr<FarDevice> device);

}  // namespace skein::engine
