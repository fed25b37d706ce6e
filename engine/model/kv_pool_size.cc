#include "engine/model/kv_pool_size.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/kv/kv_pages.h"

namespace skein::engine {
namespace {

int64_t BlocksLimit(const KvSpec& kv) { return KvBlocksIn(INT64_MAX, kv); }

}  // namespace

KvSpec KvShapeOf(const ModelConfig& config, DType weights, const ModelEngineOptions& options) {
  KvSpec kv;
  kv.num_layers = config.num_layers;
  kv.kv_heads = config.num_kv_heads;
  kv.head_dim = config.head_dim;
  kv.block_tokens = options.block_tokens;
  kv.dtype = options.kv_dtype.value_or(weights);
  return kv;
}

absl::StatusOr<int64_t> BlocksAskedFor(const KvSpec& kv, const ModelEngineOptions& options) {
  const int64_t bytes_a_block = kv.BlockBytes() * kv.num_layers;
  const int64_t blocks =
      options.num_blocks > 0 ? options.num_blocks : options.kv_bytes / bytes_a_block;
  if (blocks == 0) {
    return absl::InvalidArgumentError(absl::StrCat("kv_bytes = ", options.kv_bytes,
                                                   ": one block takes ", bytes_a_block, " bytes"));
  }
  if (blocks > BlocksLimit(kv)) {
    return absl::InvalidArgumentError(absl::StrCat("num_blocks = ", blocks, ": too many"));
  }
  return blocks;
}

absl::StatusOr<KvRest> KvRest::Make(const KvSpec& kv, int64_t placed_bytes, Device* device) {
  const absl::StatusOr<MemoryUse> use = device->MemoryInfo();
  if (!use.ok()) return use.status();
  return KvRest(kv, placed_bytes, static_cast<int64_t>(use->free_bytes), device);
}

absl::StatusOr<int64_t> KvRest::BlocksMax() const {
  if (placed_bytes_ > free_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("device memory: ", free_bytes_,
                                                     " bytes, but the weights alone take ",
                                                     placed_bytes_, " bytes"));
  }
  return KvBlocksIn(free_bytes_ - placed_bytes_, kv_);
}

absl::StatusOr<int64_t> KvRest::Blocks(int64_t more_bytes) const {
  const absl::StatusOr<MemoryUse> use = device_->MemoryInfo();
  if (!use.ok()) return use.status();
  const auto free = static_cast<int64_t>(use->free_bytes);
  const int64_t left = free - placed_bytes_ - more_bytes;
  const int64_t blocks = KvBlocksIn(left, kv_);
  if (blocks > 0) return blocks;
  return absl::ResourceExhaustedError(
      absl::StrCat("device memory: ", free_bytes_, " bytes, of which the weights take ",
                   placed_bytes_, " and the buffers of steps ", free_bytes_ - free + more_bytes,
                   "; the remaining ", std::max<int64_t>(0, left),
                   " bytes hold no KV block, which takes ", kv_.BlockBytes() * kv_.num_layers));
}

absl::Status KvRest::About(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("device memory: ", free_bytes_, " bytes, of which the weights take ",
                   placed_bytes_,
                   "; the buffers of steps do not fit beside them: ", status.message()));
}

}  // namespace skein::engine
