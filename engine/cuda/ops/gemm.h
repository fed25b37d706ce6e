// Gemm: the dense products of CudaOps. Implementations: cuBLASLt (cublas_gemm.h), our kernel for
// skinny GEMMs before another Gemm (skinny_gemm/skinny_gemm.h), and our plain kernel, which takes
// every combination of dtypes that Ops::MatMul allows.
#pragma once

#include <memory>

#include "engine/base/tensor.h"
#include "engine/cuda/simt/stream.h"
#include "engine/ops/ops.h"
#include "engine/ops/products.h"

namespace skein::engine {

class Gemm {
 public:
  virtual ~Gemm() = default;

  // Puts out = x · wᵀ + bias on `stream`: the device's, or one that records. Contract, dtypes and
  // invariance are those of Ops::MatMul; buffers are device memory, and there is at least one row
  // and one column.
  virtual void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                        CudaStream stream) = 0;

  // The same for columns of several bands of rows of `one`'s weights and bias. False: it is not for
  // this Gemm, and nothing was done.
  virtual bool MultiplyBands(ConstMatrix x, const BandedProduct& one, CudaStream stream) {
    return false;
  }

  // As Ops::SkinnyRowsMax.
  virtual int64_t SkinnyRowsMax(DType x, DType w) const { return kSkinnyRowsMax; }
};

std::unique_ptr<Gemm> MakePlainGemm();

}  // namespace skein::engine
