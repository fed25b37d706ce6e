// Memory that grows to what was asked for most and is then reused: no allocation in a steady step.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

class Scratch {
 public:
  // At least `bytes`, aligned to 64; contents are whatever they were. Valid until the next Get.
  std::byte* Get(size_t bytes) {
    if (bytes > bytes_) {
      buffer_.reset();
      bytes_ = (bytes + 4095) / 4096 * 4096;
      buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes_)));
      SKEIN_CHECK_MSG(buffer_ != nullptr, "out of memory");
    }
    return buffer_.get();
  }
  template <typename T>
  T* GetArray(int64_t count) {
    return reinterpret_cast<T*>(Get(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  struct FreeMemory {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, FreeMemory> buffer_;
  size_t bytes_ = 0;
};

}  // namespace skein::engine
