// A plan as SP sizes, before its instances are listed. Part of CdspPlanner.
#pragma once

#include <array>
#include <cstdint>

namespace skein::scheduler {

// SP sizes are powers of two up to LatencyModel::kMaxSp.
inline constexpr int kMaxSpSizes = 17;

// Ring attention splits a chunk into two shards per instance; each shard needs a token.
inline bool HoldsEnough(int sp, int64_t tokens) { return tokens >= 2 * int64_t{sp}; }

struct PathChunk {
  int size_index = 0;  // into the model's SP sizes; grows with each chunk
  int64_t tokens = 0;
  double start_s = 0;
  double end_s = 0;
};

struct ChunkPath {
  double ttft_s = 0;
  int chunks = 0;
  int start_node = -1;  // first node of the groups; -1: by the rules of section 5.1
  std::array<PathChunk, kMaxSpSizes> chunk;
};

}  // namespace skein::scheduler
