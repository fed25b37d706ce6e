// Memory of a device for the groups of a KernelFabric. Internal to this folder. Thread-safe.
//
// Other ranks write to a group's memory until their last kernel has ended, which may be after this
// rank let the group go. No kernel begins after that (the hosts meet before the first one of a
// step), and none waits longer than kKernelWaitMax: so memory that was given back rests for twice
// that time before another group gets it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"
#include "engine/device/device.h"

namespace skein::engine {

inline constexpr auto kKernelWaitMax = std::chrono::seconds(60);  // of one kernel, for the others
inline constexpr auto kKernelMemoryRest = 2 * kKernelWaitMax;

class KernelMemory {
 public:
  using Clock = std::chrono::steady_clock;
  // What a group of this rank used.
  struct Lot {
    std::vector<std::pair<std::byte*, size_t>> memory;
    std::vector<std::shared_ptr<std::byte>> opened;  // of other ranks
  };

  // Allocates when it is asked, and keeps everything until its end.
  explicit KernelMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  // Allocates `bytes` now and nothing later. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<KernelMemory>> Reserve(std::shared_ptr<Device> device,
                                                               std::shared_ptr<CopyStream> copies,
                                                               size_t bytes);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  // Zeros, aligned to 256, added to `lot`. RESOURCE_EXHAUSTED.
  absl::StatusOr<std::byte*> Take(size_t bytes, Clock::time_point now, Lot* lot);
  void GiveBack(Lot lot, Clock::time_point now);

 private:
  using Stretch = std::pair<std::byte*, size_t>;

  absl::StatusOr<std::byte*> Allocate(size_t bytes);
  void TakeRested(Clock::time_point now);
  absl::Status Clear(const Stretch& stretch);

  const std::shared_ptr<Device> device_;
  std::shared_ptr<CopyStream> copies_;  // null: nothing is reserved
  std::mutex mutex_;
  std::vector<std::pair<void*, size_t>> owned_;
  std::vector<Stretch> free_;                               // not zeros
  std::vector<std::pair<Clock::time_point, Lot>> resting_;  // until then
};

}  // namespace skein::engine
