// Memory of a device for the groups of a KernelFabric. Internal to this folder. Thread-safe.
//
// Other ranks write to a group's memory until their last kernel has ended, which may be after this
// rank let the group go. They queue kernels for at most `wait_max` after the last meeting of the
// hosts that this rank took part in (KernelCommunicator), and none waits for another rank beyond
// that time, or for a second if that is longer (and wait_max is). So memory that was given back
// rests for twice wait_max before another group gets it: what remains for the work that was queued
// on their devices before the last of these kernels is the other half. Memory of a group whose
// hosts met for no kernel, so that nobody queued one, is used again at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"
#include "engine/device/device.h"

namespace skein::engine {

class KernelMemory {
 public:
  using Clock = std::chrono::steady_clock;
  // What a group of this rank used.
  struct Lot {
    std::vector<std::pair<std::byte*, size_t>> memory;
    std::vector<std::shared_ptr<std::byte>> opened;  // of other ranks
  };

  // Allocates when it is asked, and keeps everything until its end.
  KernelMemory(std::shared_ptr<Device> device, Clock::duration wait_max)
      : device_(std::move(device)), rest_(2 * wait_max) {}
  // Allocates `bytes` now and nothing later. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<KernelMemory>> Reserve(std::shared_ptr<Device> device,
                                                               std::shared_ptr<CopyStream> copies,
                                                               size_t bytes,
                                                               Clock::duration wait_max);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  // Zeros, aligned to 256, which `lot` gives back; without a reserve they are kept until the end.
  // UNAVAILABLE: there is none now, but some rests. RESOURCE_EXHAUSTED: there is none.
  absl::StatusOr<std::byte*> Take(size_t bytes, Clock::time_point now, Lot* lot);
  // `written`: other ranks may have queued kernels that write there.
  void GiveBack(Lot lot, bool written, Clock::time_point now);

 private:
  using Stretch = std::pair<std::byte*, size_t>;

  absl::StatusOr<std::byte*> Allocate(size_t bytes);
  void Free(const Stretch& stretch);
  void Free(const std::vector<Stretch>& stretches) {
    for (const Stretch& stretch : stretches) Free(stretch);
  }
  void TakeRested(Clock::time_point now);
  absl::Status Lacks(size_t bytes, Clock::time_point now) const;
  absl::Status Clear(const Stretch& stretch);

  const std::shared_ptr<Device> device_;
  const Clock::duration rest_;
  std::shared_ptr<CopyStream> copies_;  // null: nothing is reserved
  std::mutex mutex_;
  std::vector<std::pair<void*, size_t>> owned_;
  std::map<std::byte*, size_t> free_;  // stretches, not zeros; no two are neighbours
  std::vector<std::pair<Clock::time_point, Lot>> resting_;  // until then
};

}  // namespace skein::engine
