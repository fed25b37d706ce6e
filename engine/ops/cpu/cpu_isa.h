// Which instruction set CpuOps' kernels use; found by cpuid at run time, so one binary runs
// everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace skein::engine {

enum class CpuIsa : uint8_t {
  kAuto,        // the best that the CPU has
  kAvx512Bf16,  // AVX-512 F, BW, DQ, VL and BF16
  kAvx512,      // the same without BF16
  kAvx2,        // AVX2, FMA, F16C
  kPortable,    // the compiler's baseline
};

constexpr std::string_view NameOf(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512Bf16:
      return "avx512bf16";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAuto:
      break;
  }
  return "auto";
}

// The one whose NameOf is `name`.
constexpr std::optional<CpuIsa> IsaNamed(std::string_view name) {
  for (const CpuIsa isa :
       {CpuIsa::kAuto, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2, CpuIsa::kPortable}) {
    if (NameOf(isa) == name) return isa;
  }
  return std::nullopt;
}

// kAuto and kPortable always are.
bool IsSupported(CpuIsa isa);

// The instruction set that kAuto selects on this CPU.
CpuIsa BestIsa();

}  // namespace skein::engine
