// out = x · wᵀ (+ bias) by oneDNN, on the calling thread only.
//
// CpuOps shares a product's columns among its own pool, so oneDNN is told to use one thread and its
// OpenMP pool never starts: no second set of threads spins on the cores, and at one thread
// everything is inline. Primitives are compiled per shape (about 0.2 ms) and kept.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/base/tensor.h"

namespace skein::engine {

class OneDnnGemm {
 public:
  // The key of a compiled product.
  struct Shape {
    int64_t rows = 0, columns = 0, depth = 0;
    int64_t x_stride = 0, w_stride = 0, out_stride = 0;
    DType in_dtype = DType::kF32;  // of x and w: f32 or bf16
    DType out_dtype = DType::kF32;
    bool has_bias = false;
    auto operator<=>(const Shape&) const = default;
  };
  class Product;  // a compiled product; may run on several threads at once

  OneDnnGemm();
  ~OneDnnGemm();

  // The product for a shape, compiled if it is new. Not thread-safe.
  std::shared_ptr<const Product> Prepare(const Shape& shape);

  // x [rows, depth], w [columns, depth], bias f32 [columns] or null, out [rows, columns].
  // `scratch`: ScratchBytes(product), aligned to 64. Thread-safe.
  void Run(const Product& product, const void* x, const void* w, const float* bias, void* out,
           void* scratch) const;
  static size_t ScratchBytes(const Product& product);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace skein::engine
