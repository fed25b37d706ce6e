// How a skinny GEMM (few rows times a matrix), out = x · wᵀ + bias with 16-bit x and w, is cut
// (skinny_gemm_kernel.h runs it). Pure, for hosts and kernels.
//
// Which bits come out. k is cut in PartsOf(n, k) parts of whole steps. A part is summed by
// mma.m16n8k16 in the order of k, from zero; the parts are joined from the first to the last, and
// the bias comes behind them. None of this depends on how many rows a call has, on the shape that
// the kernel runs in, or on the GPU: a row's bits are the same in every call.
//
// What is fast. A step streams kSkinnyGemmStep columns of the weights of a tile, and of the rows,
// through a ring in shared memory. Items (a tile's part) are dealt to a grid that stays, and the
// ring goes on from item to item. Small products are cut in parts so that all multiprocessors have
// work. Up to 8 rows the parts of a tile are summed in one block and meet in its shared memory;
// more rows need wide tiles (each tile reads all rows from L2), so their parts go to different
// blocks, and the one that ends last joins what all have left in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::engine {

inline constexpr int64_t kSkinnyGemmRowsMax = 256;  // rows of a call
inline constexpr int kSkinnyGemmStep = 64;          // of k: 128 bytes of a row of the weights
inline constexpr int kSkinnyGemmThreads = 256;

// A tile of `columns` of the output by `rows`, by eight warps of which `warps_rows` divide the
// rows, and `parts` the parts of k; the others divide the columns.
struct SkinnyGemmShape {
  int rows;
  int columns;
  int parts;
  int warps_rows;
  int stages;
  int blocks;  // a multiprocessor of Hopper

  constexpr int stage_bytes() const { return parts * (columns + rows) * kSkinnyGemmStep * 2; }
  // Where parts meet, or, when they are of different blocks, the word that says whose is the last.
  constexpr int join_bytes() const { return parts > 1 ? (parts - 1) * columns * rows * 4 : 16; }
  constexpr int shared_bytes() const { return stages * stage_bytes() + join_bytes(); }
};

// The first three for 1, 2 and 4 parts.
inline constexpr SkinnyGemmShape kSkinnyGemmShapes[] = {
    {8, 128, 1, 1, 5, 2},  {8, 64, 2, 1, 5, 2},   {8, 32, 4, 1, 4, 2},    {16, 128, 1, 1, 5, 2},
    {32, 128, 1, 1, 4, 2}, {64, 128, 1, 2, 4, 2}, {128, 128, 1, 4, 5, 1}, {256, 128, 1, 4, 3, 1},
};
inline constexpr int kSkinnyGemmShapeCount = sizeof kSkinnyGemmShapes / sizeof kSkinnyGemmShapes[0];
inline constexpr int kSkinnyGemmFirstWide = 3;  // from here on parts go to different blocks

struct SkinnyGemmParts {
  int parts;       // 1, 2 or 4, none empty
  int part_steps;  // of each but the last, which may have fewer
  int steps;       // of all
};

// REQUIRES: k > 0.
constexpr SkinnyGemmParts PartsOf(int64_t n, int64_t k) {
  int parts = n < 6144 ? 4 : n < 12288 ? 2 : 1;
  while (parts > 1 && k < 256 * parts) parts /= 2;
  const auto steps = static_cast<int>((k + kSkinnyGemmStep - 1) / kSkinnyGemmStep);
  return {parts, (steps + parts - 1) / parts, steps};
}

// Index of the shape for `rows` in `parts` on a GPU whose blocks have up to `shared_bytes_max`. One
// of fewer rows when none that takes them all has room: then the call is cut.
constexpr int ShapeFor(int64_t rows, int parts, int shared_bytes_max) {
  if (rows <= kSkinnyGemmShapes[0].rows) return parts == 1 ? 0 : parts == 2 ? 1 : 2;
  int shape = kSkinnyGemmFirstWide;
  while (shape + 1 < kSkinnyGemmShapeCount && kSkinnyGemmShapes[shape].rows < rows &&
         kSkinnyGemmShapes[shape + 1].shared_bytes() <= shared_bytes_max) {
    ++shape;
  }
  return shape;
}

struct SkinnyGemmGrid {
  int shape;  // of kSkinnyGemmShapes
  int tiles;
  int items;  // tiles, or tiles times parts
};

constexpr SkinnyGemmGrid GridFor(int64_t rows, int64_t n, const SkinnyGemmParts& parts,
                                 int shared_bytes_max) {
  const int shape = ShapeFor(rows, parts.parts, shared_bytes_max);
  const int columns = kSkinnyGemmShapes[shape].columns;
  const auto tiles = static_cast<int>((n + columns - 1) / columns);
  return {shape, tiles, shape < kSkinnyGemmFirstWide ? tiles : tiles * parts.parts};
}

// Device memory for parts on their way to being joined, of any product: f32 tiles, and a counter
// for each tile, 0 between calls.
inline constexpr int kSkinnyGemmCounters = 128;
inline constexpr size_t kSkinnyGemmPartialBytes = size_t{4} * 6144 * kSkinnyGemmRowsMax * 4;
inline constexpr size_t kSkinnyGemmScratchBytes = kSkinnyGemmPartialBytes + kSkinnyGemmCounters * 4;

}  // namespace skein::engine
