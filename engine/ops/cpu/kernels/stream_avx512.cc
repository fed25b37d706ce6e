#include "engine/ops/cpu/simd/simd_avx512.h"
// Over that Simd:
#include "engine/ops/cpu/kernels/block_product.h"
#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "engine/ops/cpu/kernels/stream.h"

namespace skein::engine {

void StreamAvx512(const StreamProduct& p, int64_t begin, int64_t end) {
  Stream<Simd>(p, begin, end);
}

const int kBlockTileRowsAvx512 = Simd::kStreamRows;

void PackTileAvx512(const StreamProduct& p, int tile, std::byte* to) {
  PackTileOf<Simd>(p, tile, to);
}

void MultiplyBlockAvx512(const BlockProduct& p, int64_t begin, int64_t end, std::byte* scratch) {
  MultiplyBlock<Simd>(p, begin, end, scratch);
}

}  // namespace skein::engine
