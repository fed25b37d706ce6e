// What simt.h has for Hopper alone (compute capability 9.0, nvcc's sm_90a): warpgroup products that
// run asynchronously, mbarriers, the fence between the generic and the async proxy, and registers
// that warpgroups pass to one another. Include it from .cu files that are compiled for 90a only.
//
// A warpgroup is four warps, the first of which has an index that is a multiple of four. Products
// (wgmma.mma_async) read shared memory through the async proxy: what threads wrote there, cp.async
// included, they must fence (FenceProxyAsync) before the barrier that lets others multiply.
//
//   WgmmaFence();                       // registers are ready
//   Wgmma<T, kN>(sums, a, b, …);  …     // any number
//   WgmmaCommit();                      // they are a group
//   WgmmaWait<0>();                     // sums are there; `a`, b and their memory are free
//   Pin(sums);
//   Pin(a);                             // where it is in registers
#pragma once

#include "engine/cuda/simt/simt.h"

namespace skein::engine::simt {

inline constexpr int kWarpgroup = 128;

// Describes a matrix of 16-bit elements in shared memory with the 128-byte swizzle: lines of 128
// bytes, eight of them an atom of 1024 bytes that begins at a multiple of 1024, piece p (16 bytes)
// of line l of an atom at place p ^ l. (PTX ISA, wgmma: "matrix descriptor", "canonical layouts".)
//   K-major, for matrices whose lines are 64 elements along k: stride_bytes from one eight rows (of
//   A; columns of B) to the next, leading_bytes unused; 16 more along k: address + 32.
//   MN-major, for B whose lines are 64 columns: leading_bytes from 64 columns to the next,
//   stride_bytes from eight k to the next; 16 more along k: address + 2 * stride_bytes.
// `address` is SharedAddress of the first element.
__device__ __forceinline__ uint64_t WgmmaDescriptor(uint32_t address, int leading_bytes,
                                                    int stride_bytes) {
  constexpr uint64_t kSwizzle128 = 1;
  return (address & 0x3ffffu) >> 4 | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | kSwizzle128 << 62;
}

// A descriptor of what lies `bytes`, a multiple of 16, further.
__device__ __forceinline__ uint64_t Advance(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

}  // namespace skein::engine::simt

#ifdef __CUDACC__
#include "engine/cuda/simt/simt_hopper_cuda.h"
#else
#include "engine/cuda/emulator/hopper_emulated.h"
#endif
