// One element of a typed buffer, read or written as f32 (rounding to nearest even).
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/f16.h"

namespace skein::engine {

inline float LoadElement(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kBF16:
      return ToFloat(static_cast<const BF16*>(data)[index]);
    case DType::kF16:
      return static_cast<float>(static_cast<const F16*>(data)[index]);
    case DType::kF32:
      break;
  }
  return static_cast<const float*>(data)[index];
}

inline void StoreElement(void* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kBF16:
      static_cast<BF16*>(data)[index] = ToBF16(value);
      return;
    case DType::kF16:
      static_cast<F16*>(data)[index] = static_cast<F16>(value);
      return;
    case DType::kF32:
      break;
  }
  static_cast<float*>(data)[index] = value;
}

}  // namespace skein::engine
