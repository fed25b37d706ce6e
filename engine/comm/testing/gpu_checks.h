// For tests of communicators of GPUs: every operation on buffers of a GPU.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"

namespace skein::engine {

// Floats in the memory of a device. They are not freed: another process may have them open.
class GpuFloats {
 public:
  GpuFloats(int device, const std::vector<float>& values);
  GpuFloats(const GpuFloats&) = delete;

  void* data() const { return data_; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), count_ * 4}; }
  std::vector<float> Read() const;

 private:
  void* data_ = nullptr;
  const size_t count_;
};

// Of several sizes; DATA_LOSS for what came out wrong. All ranks call it.
absl::Status CheckOnGpu(Communicator* comm, int device);

}  // namespace skein::engine
