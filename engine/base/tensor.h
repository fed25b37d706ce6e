// Non-owning views of dense row-major matrices. A view never allocates and never outlives its
// buffer.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace skein::engine {

// rows × cols elements of `dtype`; row r begins at data + r * stride elements (stride ≥ cols, so a
// column slice of a larger matrix is a view too: this is how a tensor-parallel rank sees its share
// of a full weight).
struct ConstMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  bool empty() const { return data == nullptr; }
};

struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  operator ConstMatrix() const { return {data, dtype, rows, cols, stride}; }  // NOLINT
  bool empty() const { return data == nullptr; }
};

// A vector is a matrix of one row.
using ConstVector = ConstMatrix;

}  // namespace skein::engine
