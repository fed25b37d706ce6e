// A budget of memory, and devices that allocate within it. Several devices may share one budget:
// what one of them takes the others do not have.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "engine/device/device.h"

namespace skein::engine {

// So many bytes. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t bytes) : total_(bytes), free_(bytes) {}

  // False, and nothing is taken, when fewer are free.
  bool Take(size_t bytes);
  void Give(size_t bytes);  // REQUIRES: so many are taken
  MemoryUse Use() const;

 private:
  const size_t total_;
  mutable std::mutex mu_;
  size_t free_;
};

// `device`, which counts each allocation, as DeviceBytes, in `budget`. Alloc answers
// RESOURCE_EXHAUSTED when the budget has not so much left, and MemoryInfo tells of the budget
// alone: it is a limit, not a promise that the machine has the memory.
std::unique_ptr<Device> MakeBudgetedDevice(std::unique_ptr<Device> device,
                                           std::shared_ptr<MemoryBudget> budget);

}  // namespace skein::engine
