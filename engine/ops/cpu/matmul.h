// MatMul of CpuOps: picks the way a product is made and shares its columns among the pool.
//
//   up to kSkinnyRowsMax rows  streamed kernel: w read once, at memory speed; batch-invariant
//   bf16 · bf16, AVX-512  oneDNN in bf16
//   f32 · f32             oneDNN in f32
//   any other             x widened to f32, w widened a panel of columns at a time, oneDNN in f32
//
// Reproducible: own kernels only, which sum in one order for any number of rows
// (docs/reproducibility.md).
#pragma once

#include <vector>

#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/onednn_gemm.h"
#include "engine/ops/cpu/scratch.h"
#include "engine/ops/ops.h"

namespace skein::engine {

class MatMulRunner {
 public:
  // Both outlive this.
  MatMulRunner(const Kernels* kernels, ThreadPool* pool, bool reproducible);

  // As Ops::MatMulSlice; shapes are already checked.
  void Run(const ConstMatrix& x, const ConstMatrix& w, const ConstVector& bias,
           const ColumnSlice& slice, const Matrix& out);

 private:
  // One thread's share of a widened product.
  struct WidenedShare;

  StreamProduct ProductOf(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                          const Matrix& out);
  void RunStreamed(const StreamProduct& product);
  void RunColumns(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                  const ProductCuts& cuts, const Matrix& out);
  // As many rows as are packed at a time.
  void RunColumnBlock(ColumnProduct product);
  void RunGemm(const ConstMatrix& x, const ConstMatrix& w, const float* bias, const Matrix& out);
  void RunWidened(const ConstMatrix& x, const ConstMatrix& w, const float* bias, const Matrix& out);
  void RunWidenedShare(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                       const Matrix& out, const WidenedShare& plan, Scratch* scratch) const;
  // x itself, or its rows widened to f32 in x_scratch_.
  ConstMatrix InF32(const ConstMatrix& x);

  const Kernels* kernels_;
  ThreadPool* pool_;
  const bool reproducible_;
  OneDnnGemm gemm_;
  Scratch x_scratch_, bias_scratch_, packed_scratch_;
  std::vector<Scratch> thread_scratch_;
};

}  // namespace skein::engine
