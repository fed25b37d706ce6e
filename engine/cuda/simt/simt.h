// What kernel sources (.cu) are written in: CUDA C++ plus the thin wrappers below, so that the same
// file compiles with nvcc for the GPU and with g++ for the emulator (engine/cuda/emulator), where
// kernels are tested without a GPU. Include it from .cu files only; hosts see plain functions that
// take a CudaStream.
//
// Usable as in CUDA: __global__, __device__, __forceinline__, __launch_bounds__, threadIdx,
// blockIdx, blockDim, gridDim, dim3, float2 … uint4 and make_*, __syncthreads and its _or, _and,
// _count forms, __syncwarp, __shfl*_sync, __ballot_sync, __any_sync, __all_sync, __reduce_*_sync,
// atomicAdd, Max, Min, Exch, CAS, Or, And; __threadfence, __ldg, __ldcg, bit and rounding
// intrinsics, __grid_constant__, `#pragma unroll`.
//
// Not as in CUDA:
//   SKEIN_SHARED(float, sums, [32]);     instead of __shared__ float sums[32];
//   DynamicShared()                      instead of extern __shared__; aligned to 1024
//   Launch(kernel, grid, block, shared_bytes, stream, args...)   instead of <<<>>>
//   BF16, Half                           16-bit floats: bits only, Widen, Narrow, Widen2, Narrow2
//   Load<uint4>(p), Store(p, v)          vector moves; the emulator checks the alignment
//   LdMatrix*, Mma16816, CpAsync*, BarrierSync, BarrierArrive, Exp2, Log2, Opaque,
//   Multiprocessors: see simt_cuda.h; simt_hopper.h has what needs compute capability 9.0,
//   simt_peer.h what kernels need that talk to other GPUs
//
// Blocks of a grid must not wait for one another (clusters and cooperative grids are not emulated).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/cuda/simt/launch_failures.h"
#include "engine/cuda/simt/stream.h"

namespace skein::engine::simt {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

// A block has 48 KiB of shared memory, static and dynamic together, unless its launch asks for
// more. Launch asks where it is given more dynamic memory than this, so a kernel with less may have
// 16 KiB of static arrays.
inline constexpr size_t kSharedBytesUnasked = 32 << 10;

// IEEE half precision as bits. (BF16 of engine/base/dtype.h is the same for bfloat16.)
struct Half {
  uint16_t bits;
};

}  // namespace skein::engine::simt

#ifdef __CUDACC__
#include "engine/cuda/simt/simt_cuda.h"
#else
#include "engine/cuda/emulator/simt_emulated.h"
#endif
