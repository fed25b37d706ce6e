// For tests: a window on a far device's memory (far_device.h), of the device itself or of a process
// that opened it. Internal to the far device.
#pragma once

#include <cstddef>

namespace skein::engine {

class FarView {
 public:
  // Of `bytes` from `offset` on of the file `fd`, whole pages. REQUIRES: it has so many.
  FarView(int fd, size_t offset, size_t bytes);
  ~FarView();
  FarView(const FarView&) = delete;

  // The addresses that are given out; no code may read or write them.
  std::byte* far() const { return far_; }
  bool Owns(const void* pointer) const {
    const auto* p = static_cast<const std::byte*>(pointer);
    return p >= far_ && p < far_ + bytes_;
  }
  // The memory behind `pointer`, for copies. REQUIRES: Owns.
  std::byte* Near(const void* pointer) const {
    return near_ + (static_cast<const std::byte*>(pointer) - far_);
  }

 private:
  const size_t bytes_;
  std::byte* near_ = nullptr;
  std::byte* far_ = nullptr;
};

// As Near, by the view of this process that owns the pointer; a pointer of the host stays as it is.
void* NearOfAny(const void* pointer);

}  // namespace skein::engine
