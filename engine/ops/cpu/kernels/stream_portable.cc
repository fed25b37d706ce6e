#include "engine/ops/cpu/simd/simd_portable.h"
// Over that Simd:
#include "engine/ops/cpu/kernels/block_product.h"
#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "engine/ops/cpu/kernels/stream.h"

namespace skein::engine {

void StreamPortable(const StreamProduct& p, int64_t begin, int64_t end) {
  Stream<Simd>(p, begin, end);
}

const int kBlockTileRowsPortable = Simd::kStreamRows;

void PackTilePortable(const StreamProduct& p, int tile, std::byte* to) {
  PackTileOf<Simd>(p, tile, to);
}

void MultiplyBlockPortable(const BlockProduct& p, int64_t begin, int64_t end, std::byte* scratch) {
  MultiplyBlock<Simd>(p, begin, end, scratch);
}

}  // namespace skein::engine
