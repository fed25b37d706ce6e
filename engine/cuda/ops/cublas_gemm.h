// Dense products by cuBLASLt: bf16, f16 and f32 (without TF32), f32 accumulators. What cuBLASLt
// does not take (an f32 x with 16-bit weights, no k) goes to our plain kernel.
//
// Which algorithm a shape gets is asked once for each bucket of row counts (rows_bucket.h) and
// kept; of a count that is not the bucket's largest cuBLASLt is asked whether it takes that, too.
// Calls of up to kSkinnyRowsMax rows all use the one that was chosen for kSkinnyRowsMax rows: every
// element of the output is then summed in the same order however many rows there are, as far as one
// algorithm does that. (16-bit skinny GEMMs do not come here: skinny_gemm/skinny_gemm.h.)
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/ops/gemm.h"

namespace skein::engine {

// RESOURCE_EXHAUSTED when there is no room for the workspace.
absl::StatusOr<std::unique_ptr<Gemm>> MakeCublasGemm(std::shared_ptr<CudaDevice> device);

}  // namespace skein::engine
