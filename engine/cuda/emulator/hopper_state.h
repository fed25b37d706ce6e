// A block's state of Hopper's operations. Internal to the emulator.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "engine/cuda/emulator/grid.h"

namespace skein::engine::simt {

inline constexpr int kWarpgroupThreads = 128;

// The sums of a chain of products: hidden until the last of them was waited for.
struct WgmmaSums {
  float* d[kWarpgroupThreads];
  int columns;
  int products = 0;           // on their way
  std::vector<float> values;  // [64][columns]
};

// Operands as they were when the product was issued.
struct WgmmaProduct {
  Site site;
  float* sums;  // of the warpgroup's first thread: which WgmmaSums
  const uint32_t* a[kWarpgroupThreads];
  uint64_t a_descriptor;
  uint64_t b_descriptor;
  int columns;
  bool b_is_mn_major;
  std::vector<uint16_t> a_bits;  // [64][16]
  std::vector<uint16_t> b_bits;  // [16][columns]
};

struct WgmmaQueue {
  bool fenced = false;
  std::vector<WgmmaSums> sums;
  std::vector<WgmmaProduct> open;
  std::deque<std::vector<WgmmaProduct>> groups;  // oldest first
};

struct Mbarrier {
  int count;
  int pending;
  int phase = 0;
};

// For 16 bytes of dynamic shared memory: the thread that wrote them and has not fenced since.
struct UnfencedWrite {
  int thread = -1;
  Site site{};
};

struct HopperState {
  std::vector<WgmmaQueue> wgmma;  // by warpgroup
  std::vector<int> registers;     // of a thread, by warpgroup
  std::unordered_map<const void*, Mbarrier> mbarriers;
  std::vector<UnfencedWrite> writes;            // by 16 bytes
  std::vector<std::vector<uint32_t>> unfenced;  // by thread: places in `writes`
};

// The state of the block that runs.
HopperState& ThisHopper();
// Before a block's threads start, and after their end.
void ResetHopper(HopperState* state, int threads, size_t dynamic_bytes);
void RequireNoProductsPending(const HopperState& state);

}  // namespace skein::engine::simt
