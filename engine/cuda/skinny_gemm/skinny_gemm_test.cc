// Skinny GEMM on the emulator: against ReferenceOps, and the same bits whatever the rows
// of the call, where they lie, the order of threads and the GPU.
#include "engine/cuda/skinny_gemm/skinny_gemm.h"

#include <cstring>
#include <random>
#include <vector>

#include "engine/cuda/emulator/grid.h"
#include "engine/ops/conformance/host_buffer.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr SkinnyGemmPolicy kHopper = {3, 227 << 10};  // of few multiprocessors: items go round
constexpr SkinnyGemmPolicy kAda = {70, 99 << 10};
constexpr DType kHalves[] = {DType::kBF16, DType::kF16};

Matrix Rows(const Matrix& m, int64_t first, int64_t count) {
  return {
      static_cast<std::byte*>(m.data) + first * m.stride * static_cast<int64_t>(BytesOf(m.dtype)),
      m.dtype, count, m.cols, m.stride};
}

// Rows that begin at multiples of 16 bytes, or do not.
int64_t PaddingFor(int64_t cols, bool aligned) { return aligned ? 8 + (8 - cols % 8) % 8 : 3; }

struct Operands {
  HostBuffer x, w, bias;
  Operands(int64_t rows, int64_t n, int64_t k, DType dtype, bool x_aligned, bool w_aligned)
      : x(rows, k, dtype, PaddingFor(k, x_aligned)),
        w(n, k, dtype, PaddingFor(k, w_aligned)),
        bias(1, n, dtype) {
    std::mt19937 random(7);
    x.Fill(&random);
    w.Fill(&random);
    bias.Fill(&random);
  }
};

class SkinnyGemm : public testing::Test {
 protected:
  SkinnyGemm() : scratch_(kSkinnyGemmScratchBytes / sizeof(float)) {
    std::memset(scratch_.data(), 0xff, kSkinnyGemmPartialBytes);
    std::memset(counters(), 0, kSkinnyGemmCounters * sizeof(int));
  }
  ~SkinnyGemm() override {
    for (int i = 0; i < kSkinnyGemmCounters; ++i) EXPECT_EQ(counters()[i], 0) << i;
    simt::SetOrder(simt::Order::kBackward);
  }
  int* counters() {
    return reinterpret_cast<int*>(reinterpret_cast<std::byte*>(scratch_.data()) +
                                  kSkinnyGemmPartialBytes);
  }

  void Run(Operands& o, int64_t first, int64_t rows, bool bias, const SkinnyGemmPolicy& policy,
           HostBuffer* out) {
    SkinnyGemmOn(Rows(o.x.view(), first, rows), o.w.view(),
                 bias ? o.bias.const_view() : ConstVector{}, {}, out->view(), policy,
                 scratch_.data(), nullptr);
  }

  // Calls of the first or the last rows against one of the largest of `counts`, which is against
  // the reference.
  void Check(int64_t n, int64_t k, DType dtype, const std::vector<int64_t>& counts) {
    SCOPED_TRACE(testing::Message() << n << " x " << k << " " << NameOf(dtype));
    const int64_t most = counts.back();
    Operands o(most, n, k, dtype, true, true), shifted(most, n, k, dtype, false, false);
    HostBuffer all(most, n, DType::kF32), expected(most, n, DType::kF32);
    Run(o, 0, most, true, kHopper, &all);
    reference_.MatMul(o.x.view(), o.w.view(), o.bias.const_view(), expected.view());
    ExpectNear(all, expected, 3e-7 * static_cast<double>(k) + 1e-6, 6e-8, "product");
    const simt::Order orders[] = {simt::Order::kForward, simt::Order::kBackward,
                                  simt::Order::kShuffled};
    int turn = 0;
    for (const int64_t rows : counts) {
      SCOPED_TRACE(rows);
      const int64_t first = turn % 4 < 2 ? 0 : most - rows;
      simt::SetOrder(orders[turn % 3]);
      HostBuffer some(rows, n, DType::kF32);
      Run(turn % 5 == 4 ? shifted : o, first, rows, true, turn % 2 == 0 ? kAda : kHopper, &some);
      ExpectSameBits(some, all, first, "rows");
      ++turn;
    }
  }

  std::vector<float> scratch_;
  ReferenceOps reference_;
};

const std::vector<int64_t> kCounts = {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 100, 129, 256};

TEST_F(SkinnyGemm, OnePart) {
  for (const DType dtype : kHalves) Check(150, 131, dtype, kCounts);
}

TEST_F(SkinnyGemm, TwoPartsOfWhichTheLastIsShorter) {
  for (const DType dtype : kHalves) Check(70, 570, dtype, kCounts);
}

TEST_F(SkinnyGemm, FourParts) {
  for (const DType dtype : kHalves) Check(45, 1100, dtype, kCounts);
}

TEST_F(SkinnyGemm, ManyTiles) {
  Check(6200, 520, DType::kBF16, {3, 12});
  Check(12300, 72, DType::kF16, {5, 9});
}

TEST_F(SkinnyGemm, AnyStridesDTypesAndBias) {
  for (const DType dtype : kHalves) {
    for (const int64_t k : {1, 63, 72, 1032}) {
      for (int kind = 0; kind < 8; ++kind) {
        const bool has_bias = (kind & 1) != 0, x_aligned = (kind & 2) != 0,
                   w_aligned = (kind & 4) != 0;
        for (const DType out_dtype : {DType::kF32, dtype}) {
          SCOPED_TRACE(testing::Message() << k << " " << kind << " " << NameOf(out_dtype));
          const int64_t rows = 1 + kind * 4;
          Operands o(rows, 37, k, dtype, x_aligned, w_aligned);
          HostBuffer actual(rows, 37, out_dtype), expected(rows, 37, DType::kF32);
          Run(o, 0, rows, has_bias, kHopper, &actual);
          reference_.MatMul(o.x.view(), o.w.view(), has_bias ? o.bias.const_view() : ConstVector{},
                            expected.view());
          ExpectNear(actual, expected, 3e-7 * static_cast<double>(k) + 1e-6,
                     out_dtype == DType::kF32 ? 6e-8 : RoundingOf(dtype), "product");
        }
      }
    }
  }
}

TEST_F(SkinnyGemm, BiasMayBeWider) {
  Operands o(9, 20, 72, DType::kBF16, true, true);
  HostBuffer wide(1, 20, DType::kF32), actual(9, 20, DType::kF32), expected(9, 20, DType::kF32);
  std::mt19937 random(3);
  wide.Fill(&random);
  SkinnyGemmOn(o.x.view(), o.w.view(), wide.const_view(), {}, actual.view(), kHopper,
               scratch_.data(), nullptr);
  reference_.MatMul(o.x.view(), o.w.view(), wide.const_view(), expected.view());
  ExpectNear(actual, expected, 3e-5, 6e-8, "product");
}

// A rank's slices of q | k | v: the bits of the product of their rows side by side.
TEST_F(SkinnyGemm, BandsOfRows) {
  struct Band {
    int64_t begin, rows;
  };
  constexpr Band kBands[] = {{5, 140}, {160, 30}, {201, 30}};
  constexpr int64_t kFirst = kBands[0].begin, kColumns = 200, kAll = 240;
  const RowBands bands = {.at = {140, 170}, .skips = {15, 11}};
  int kind = 0;
  for (const DType dtype : kHalves) {
    for (const int64_t k : {72, 600, 1100}) {
      for (const int64_t rows : {1, 8, 9, 33, 130}) {
        SCOPED_TRACE(testing::Message() << k << " " << rows << " " << NameOf(dtype));
        const bool aligned = ++kind % 3 != 0;
        Operands o(rows, kAll, k, dtype, aligned, aligned),
            near(rows, kColumns, k, dtype, true, aligned);
        const int64_t bytes = static_cast<int64_t>(BytesOf(dtype));
        int64_t column = 0;
        for (const Band& band : kBands) {
          for (int64_t row = band.begin; row < band.begin + band.rows; ++row, ++column) {
            std::memcpy(Rows(near.w.view(), column, 1).data, Rows(o.w.view(), row, 1).data,
                        static_cast<size_t>(k * bytes));
            std::memcpy(static_cast<std::byte*>(near.bias.view().data) + column * bytes,
                        static_cast<std::byte*>(o.bias.view().data) + row * bytes,
                        static_cast<size_t>(bytes));
          }
        }
        HostBuffer expected(rows, kColumns, DType::kF32), actual(rows, kColumns, DType::kF32);
        SkinnyGemmOn(o.x.view(), near.w.view(), near.bias.const_view(), {}, expected.view(),
                     kHopper, scratch_.data(), nullptr);
        Matrix w = Rows(o.w.view(), kFirst, kColumns);
        ConstVector bias = o.bias.const_view();
        bias.data = static_cast<const std::byte*>(bias.data) + kFirst * bytes;
        bias.cols = bias.stride = kColumns;
        SkinnyGemmOn(o.x.view(), w, bias, bands, actual.view(), kAda, scratch_.data(), nullptr);
        ExpectSameBits(actual, expected, 0, "bands");
      }
    }
  }
}

}  // namespace
}  // namespace skein::engine
