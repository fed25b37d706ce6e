// What product_bench runs on: the first GPU, or the emulator, which runs the bench itself but
// measures nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/cuda/simt/stream.h"
#include "engine/cuda/skinny_gemm/skinny_gemm.h"
#include "engine/device/device.h"

namespace skein::bench {

struct ProductShape {
  const char* of;  // what it is of
  int64_t n, k;
};

struct ProductBackend {
  std::shared_ptr<engine::Device> device;
  engine::CudaStream stream = nullptr;
  engine::SkinnyGemmPolicy policy;
  std::vector<ProductShape> shapes;
  std::vector<int64_t> rows;
  // Weights of a shape are repeated to so many bytes, more than any cache has.
  int64_t weight_bytes = 0;
  // Seconds of what is put on the stream.
  std::function<double(const std::function<void()>&)> seconds;
  // x · wᵀ by the library that it is compared with, in bf16.
  std::function<void(const engine::ConstMatrix& x, const engine::ConstMatrix& w,
                     const engine::Matrix& out)>
      peer;
  // The rate of a large device copy, read and written.
  std::function<double()> copy_bytes_per_second;
};

// Ends the process when there is none.
ProductBackend OpenProductBackend();

}  // namespace skein::bench
