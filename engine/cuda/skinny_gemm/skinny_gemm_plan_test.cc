#include "engine/cuda/skinny_gemm/skinny_gemm_plan.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr int kHopper = 227 << 10, kAmpere = 163 << 10, kAda = 99 << 10;

TEST(SkinnyGemmPlan, NoPartIsEmpty) {
  for (const int64_t n : {1, 1024, 6143, 6144, 12287, 12288, 128256}) {
    for (int64_t k = 1; k < 20000; k += k < 3000 ? 1 : 61) {
      const SkinnyGemmParts parts = PartsOf(n, k);
      EXPECT_GE(int64_t{parts.steps} * kSkinnyGemmStep, k);
      EXPECT_LT(int64_t{parts.steps - 1} * kSkinnyGemmStep, k);
      EXPECT_LT((parts.parts - 1) * parts.part_steps, parts.steps) << n << " " << k;
      EXPECT_GE(parts.parts * parts.part_steps, parts.steps);
    }
  }
}

TEST(SkinnyGemmPlan, SmallProductsAreCutInParts) {
  EXPECT_EQ(PartsOf(4096, 4096).parts, 4);
  EXPECT_EQ(PartsOf(1024, 1024).parts, 4);
  EXPECT_EQ(PartsOf(1024, 1023).parts, 2);
  EXPECT_EQ(PartsOf(8192, 4096).parts, 2);
  EXPECT_EQ(PartsOf(28672, 4096).parts, 1);
  EXPECT_EQ(PartsOf(8192, 100).parts, 1);
}

TEST(SkinnyGemmPlan, OneLaunchTakesAllRowsWhereThereIsRoom) {
  for (const int shared : {kHopper, kAmpere, kAda}) {
    for (int64_t rows = 1; rows <= kSkinnyGemmRowsMax; ++rows) {
      for (const int parts : {1, 2, 4}) {
        const SkinnyGemmShape& shape = kSkinnyGemmShapes[ShapeFor(rows, parts, shared)];
        EXPECT_LE(shape.shared_bytes(), shared);
        EXPECT_GE(shape.rows, shared == kAda ? std::min<int64_t>(rows, 64) : rows);
        EXPECT_TRUE(shape.rows < 2 * rows || shape.rows == 8) << rows;
      }
    }
  }
}

// Two blocks of the shapes for that, with the KiB that CUDA takes of each.
TEST(SkinnyGemmPlan, BlocksFitAMultiprocessor) {
  for (const SkinnyGemmShape& shape : kSkinnyGemmShapes) {
    EXPECT_LE(shape.blocks * (shape.shared_bytes() + 1024), 228 << 10);
  }
}

TEST(SkinnyGemmPlan, PartsOfAllProductsHaveRoom) {
  for (int64_t n = 1; n < 13000; ++n) {
    for (const int64_t k : {64, 512, 1024, 14336}) {
      const SkinnyGemmParts parts = PartsOf(n, k);
      for (const int64_t rows : {1, 9, 17, 33, 65, 129}) {
        const SkinnyGemmGrid grid = GridFor(rows, n, parts, kHopper);
        if (grid.items == grid.tiles) continue;
        const SkinnyGemmShape& shape = kSkinnyGemmShapes[grid.shape];
        EXPECT_LE(size_t{4} * grid.items * shape.rows * shape.columns, kSkinnyGemmPartialBytes);
        EXPECT_LE(grid.tiles, kSkinnyGemmCounters);
      }
    }
  }
}

// What decode wants of the shapes of Llama-3-8B: an item for nearly each of 132 multiprocessors.
TEST(SkinnyGemmPlan, ProductsFillAGpu) {
  for (const int64_t rows : {1, 8, 64, 256}) {
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{4096, 4096}, {4096, 14336}, {28672, 4096}, {128256, 4096}}) {
      EXPECT_GE(GridFor(rows, n, PartsOf(n, k), kHopper).items, 128) << rows << " " << n;
    }
  }
}

}  // namespace
}  // namespace skein::engine
