// Matrices of the conformance suite, in host memory, and how they are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/ops/element.h"

namespace skein::engine {

inline constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// Half the distance between neighbours, relative to the value.
inline double RoundingOf(DType dtype) {
  return dtype == DType::kF32 ? 6e-8 : dtype == DType::kBF16 ? 3.92e-3 : 4.9e-4;
}

// A matrix that owns its elements, with a stride wider than its rows.
class HostBuffer {
 public:
  HostBuffer(int64_t rows, int64_t cols, DType dtype, int64_t padding = 3)
      : bytes_(static_cast<size_t>(rows * (cols + padding) + 1) * BytesOf(dtype)),
        view_{bytes_.data(), dtype, rows, cols, cols + padding} {}

  Matrix view() { return view_; }
  ConstMatrix const_view() const { return view_; }
  float at(int64_t row, int64_t col) const {
    return LoadElement(view_.data, view_.dtype, row * view_.stride + col);
  }
  void set(int64_t row, int64_t col, float value) {
    StoreElement(view_.data, view_.dtype, row * view_.stride + col, value);
  }

  // Normally distributed around 0. Rows in order, so that equal seeds give equal contents.
  void Fill(std::mt19937* random, float spread = 1.0f);

  HostBuffer(const HostBuffer& other) : bytes_(other.bytes_), view_(other.view_) {
    view_.data = bytes_.data();
  }
  HostBuffer& operator=(const HostBuffer&) = delete;

 private:
  std::vector<std::byte> bytes_;
  Matrix view_;
};

// |actual - expected| ≤ absolute + relative * |expected|, everywhere.
void ExpectNear(const HostBuffer& actual, const HostBuffer& expected, double absolute,
                double relative, const std::string& what);

void ExpectSame(const HostBuffer& actual, const HostBuffer& expected, const std::string& what);

// As ExpectSame, bit by bit, for rows [first, first + actual's rows) of `expected`.
void ExpectSameBits(const HostBuffer& actual, const HostBuffer& expected, int64_t first,
                    const std::string& what);

}  // namespace skein::engine
