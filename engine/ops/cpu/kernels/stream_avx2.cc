#include "engine/ops/cpu/simd/simd_avx2.h"
// Over that Simd:
#include "engine/ops/cpu/kernels/block_product.h"
#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "engine/ops/cpu/kernels/stream.h"

namespace skein::engine {

void StreamAvx2(const StreamProduct& p, int64_t begin, int64_t end) { Stream<Simd>(p, begin, end); }

const int kBlockTileRowsAvx2 = Simd::kStreamRows;

void PackTileAvx2(const StreamProduct& p, int tile, std::byte* to) {
  PackTileOf<Simd>(p, tile, to);
}

void MultiplyBlockAvx2(const BlockProduct& p, int64_t begin, int64_t end, std::byte* scratch) {
  MultiplyBlock<Simd>(p, begin, end, scratch);
}

}  // namespace skein::engine
