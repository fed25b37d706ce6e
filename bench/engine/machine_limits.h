// What the machine can do, measured: the limits beside which the engine's figures stand.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::bench {

// Bytes a second of a read-only sweep over memory that no cache holds, each of `threads` reading
// its own part. Best of a few sweeps.
double SweepBytesPerSecond(int threads);

// One product of a layer: [rows, depth] · [columns, depth]ᵀ.
struct GemmShape {
  int64_t columns = 0;
  int64_t depth = 0;
};

// Seconds that oneDNN takes, on `threads` of its own, for all `shapes` once with `rows` rows: bf16
// in, f32 out, weights row-major as checkpoints have them. Best of a few passes.
double GemmSeconds(const std::vector<GemmShape>& shapes, int64_t rows, int threads);

}  // namespace skein::bench
