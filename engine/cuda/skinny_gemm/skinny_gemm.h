// SkinnyGemm: products of up to kSkinnyGemmRowsMax rows with 16-bit operands by our own kernel
// (skinny_gemm_plan.h), which reads the weights once and gives a row the same bits in every call;
// all others by another Gemm.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/ops/gemm.h"
#include "engine/cuda/skinny_gemm/skinny_gemm_plan.h"
#include "engine/device/device.h"

namespace skein::engine {

struct SkinnyGemmPolicy {
  int multiprocessors = 0;
  int shared_bytes_max = 0;  // of a block
};

// Puts the product on `stream`, in one launch where shared memory has room for all rows. x and w
// bf16 or f16, 1 … kSkinnyGemmRowsMax rows, at least one column of each; any strides and addresses,
// but where those of x or w permit no 16-byte moves it is slow. `scratch`: device memory of
// kSkinnyGemmScratchBytes, zeros at first, for products that are done one after another.
void SkinnyGemmOn(const ConstMatrix& x, const ConstMatrix& w, const ConstVector& bias,
                  const RowBands& bands, const Matrix& out, const SkinnyGemmPolicy& policy,
                  void* scratch, CudaStream stream);

// Works on `device`'s memory, in the order of its copies. RESOURCE_EXHAUSTED when there is no room
// for the parts of products.
absl::StatusOr<std::unique_ptr<Gemm>> MakeSkinnyGemm(std::shared_ptr<Device> device,
                                                     const SkinnyGemmPolicy& policy,
                                                     std::unique_ptr<Gemm> others);

}  // namespace skein::engine
