// SplitGemm: products of f32 rows with 16-bit weights (f16 checkpoints, and those whose matrices
// have several dtypes) as products of 16-bit rows, which tensor cores and SkinnyGemm take.
//
// A row is split without loss but for its last bits: with bf16 weights into three rows of bf16
// whose sum it is; with f16 weights into a power of two, its own, times two rows of f16, 22 bits in
// all relative to the row's largest value. The products of all parts are one product, in f32, whose
// rows are then added up.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/cuda/ops/gemm.h"
#include "engine/device/device.h"

namespace skein::engine {

// Memory for parts and products, taken at the first such product and kept: rows beyond it go in
// several runs.
inline constexpr size_t kSplitGemmScratchBytes = size_t{64} << 20;

// Works on `device`'s memory, in the order of its copies. `others` makes the products of the parts
// and all that need no parts; it makes the rest, too, where there is no memory for the parts.
std::unique_ptr<Gemm> MakeSplitGemm(std::shared_ptr<Device> device, std::unique_ptr<Gemm> others,
                                    size_t scratch_bytes = kSplitGemmScratchBytes);

}  // namespace skein::engine
