// Element types of weights, activations and KV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace skein {

enum class DType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2 };

constexpr size_t BytesOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr std::string_view NameOf(DType dtype) {
  return dtype == DType::kF32 ? "f32" : dtype == DType::kBF16 ? "bf16" : "f16";
}

}  // namespace skein
