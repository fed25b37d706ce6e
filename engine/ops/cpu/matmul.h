// MatMuls of CpuOps: picks the way products are made and shares their columns among the pool, all
// of one call at once.
//
//   up to kSkinnyRowsMax rows  streamed kernel: w read once, at memory speed; batch-invariant
//   bf16 · bf16, AVX-512  oneDNN in bf16
//   f32 · f32             oneDNN in f32
//   any other             x widened to f32, w widened a panel of columns at a time, oneDNN in f32
//
// Reproducible: own kernels only, which sum in one order for any number of rows
// (docs/reproducibility.md).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/onednn_gemm.h"
#include "engine/ops/cpu/scratch.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// Columns [begin, end) of a product.
struct ColumnShare {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t width() const { return end - begin; }
};

class MatMulRunner {
 public:
  // Both outlive this.
  MatMulRunner(const Kernels* kernels, ThreadPool* pool, bool reproducible);

  // As Ops::MatMuls; shapes are already checked.
  void Run(const ConstMatrix& x, std::span<const Product> products);

 private:
  // One thread's share of a widened product.
  struct WidenedShare;

  // REQUIRES: products of one dtype and slice, so that all are made in one way.
  void RunAlike(const ConstMatrix& x, std::span<const Product> products);
  // Sets biases_, of each product in f32 or null.
  void WidenBiases(std::span<const Product> products);
  void RunStreamed(const ConstMatrix& x, std::span<const Product> products);
  void RunColumns(const ConstMatrix& x, std::span<const Product> products);
  // As many rows as are packed at a time.
  void RunColumnBlock(std::span<const Product> products, std::span<ColumnProduct> columns);
  void RunGemm(const ConstMatrix& x, std::span<const Product> products);
  void RunWidened(const ConstMatrix& x, std::span<const Product> products);
  WidenedShare PrepareWidened(const ConstMatrix& rows, const ColumnShare& columns, bool bias);
  void RunWidenedShare(const ConstMatrix& x, const Product& product, const float* bias,
                       const WidenedShare& plan, Scratch* scratch) const;
  // x itself, or its rows widened to f32 in x_scratch_.
  ConstMatrix InF32(const ConstMatrix& x);

  const Kernels* kernels_;
  ThreadPool* pool_;
  const bool reproducible_;
  OneDnnGemm gemm_;
  Scratch x_scratch_, bias_scratch_, packed_scratch_;
  std::vector<Scratch> thread_scratch_;
  std::vector<const float*> biases_;  // in bias_scratch_
};

}  // namespace skein::engine
