// simt_hopper.h on the GPU. Compiled by nvcc for sm_90a only.
#pragma once

#include <type_traits>

namespace skein::engine::simt {

// The value that all lanes have, in one of the warp's own registers, where wgmma wants descriptors:
// of a value in the lanes' registers the compiler does not know that it is the same in all.
__device__ __forceinline__ int Uniform(int value) { return __shfl_sync(kAllLanes, value, 0); }

// wgmma.fence: orders what this warp did with registers before the products that follow, which
// take them as sums or as A.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// wgmma.commit_group: the products since the last one are a group.
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// wgmma.wait_group: until at most the kPending newest groups are on their way.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// After a wait: the compiler uses `sums` from here on only, and has kept `a` until here.
template <int kTiles>
__device__ __forceinline__ void Pin(float (&sums)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(sums[i][j])::"memory");
  }
}
template <int kFragments>
__device__ __forceinline__ void Pin(uint32_t (&a)[kFragments][4]) {
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
  }
}

// wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T: d = a · b (+ d), A 64x16, B 16xN, d 64xN. Of d
// (and of A in registers) warp w of the warpgroup has rows 16 w to 16 w + 15, as Mma16816 lays them
// out: d[i] is columns 8 i to 8 i + 7. Not there before WgmmaWait; until then neither d, nor `a`,
// nor the memory behind descriptors may be touched.
#define SKEIN_TILE(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define SKEIN_WGMMA_SHARED_128(type)                                                              \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                \
      " "                                                                                         \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "    \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "     \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "     \
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                                  \
      "%64, %65, p, 1, 1, 0, 0;\n}\n"                                                             \
      : SKEIN_TILE(0), SKEIN_TILE(1), SKEIN_TILE(2), SKEIN_TILE(3), SKEIN_TILE(4), SKEIN_TILE(5), \
        SKEIN_TILE(6), SKEIN_TILE(7), SKEIN_TILE(8), SKEIN_TILE(9), SKEIN_TILE(10),               \
        SKEIN_TILE(11), SKEIN_TILE(12), SKEIN_TILE(13), SKEIN_TILE(14), SKEIN_TILE(15)            \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
#define SKEIN_WGMMA_REGISTERS_128(type)                                                           \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                \
      " "                                                                                         \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "    \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "     \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "     \
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                                  \
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n"                                               \
      : SKEIN_TILE(0), SKEIN_TILE(1), SKEIN_TILE(2), SKEIN_TILE(3), SKEIN_TILE(4), SKEIN_TILE(5), \
        SKEIN_TILE(6), SKEIN_TILE(7), SKEIN_TILE(8), SKEIN_TILE(9), SKEIN_TILE(10),               \
        SKEIN_TILE(11), SKEIN_TILE(12), SKEIN_TILE(13), SKEIN_TILE(14), SKEIN_TILE(15)            \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)))
#define SKEIN_WGMMA_REGISTERS_64(type)                                                            \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                 \
      " "                                                                                         \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "    \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                        \
      "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"                                               \
      : SKEIN_TILE(0), SKEIN_TILE(1), SKEIN_TILE(2), SKEIN_TILE(3), SKEIN_TILE(4), SKEIN_TILE(5), \
        SKEIN_TILE(6), SKEIN_TILE(7)                                                              \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)))

// A and B K-major in shared memory.
template <typename T, int kN>
__device__ __forceinline__ void Wgmma(float (&d)[kN / 8][4], uint64_t a, uint64_t b,
                                      bool accumulate) {
  static_assert(kN == 128);
  if constexpr (std::is_same_v<T, BF16>) {
    SKEIN_WGMMA_SHARED_128("bf16");
  } else {
    SKEIN_WGMMA_SHARED_128("f16");
  }
}
// A in registers, B MN-major in shared memory.
template <typename T, int kN>
__device__ __forceinline__ void Wgmma(float (&d)[kN / 8][4], const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  static_assert(kN == 64 || kN == 128);
  if constexpr (kN == 128 && std::is_same_v<T, BF16>) {
    SKEIN_WGMMA_REGISTERS_128("bf16");
  } else if constexpr (kN == 128) {
    SKEIN_WGMMA_REGISTERS_128("f16");
  } else if constexpr (std::is_same_v<T, BF16>) {
    SKEIN_WGMMA_REGISTERS_64("bf16");
  } else {
    SKEIN_WGMMA_REGISTERS_64("f16");
  }
}
#undef SKEIN_WGMMA_SHARED_128
#undef SKEIN_WGMMA_REGISTERS_128
#undef SKEIN_WGMMA_REGISTERS_64
#undef SKEIN_TILE

// fence.proxy.async: what this thread wrote to shared memory is there for products of whoever
// comes behind a barrier that follows.
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// mbarrier.init: a barrier (8 bytes of shared memory, aligned) whose phases end with `count`
// arrivals each. Others may use it behind a __syncthreads.
__device__ __forceinline__ void MbarrierInit(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count)
               : "memory");
}
// mbarrier.arrive: releases what this thread did.
__device__ __forceinline__ void MbarrierArrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}
// mbarrier.try_wait.parity until the phase of this parity has ended: phases are numbered from 0,
// and that before phase 0 (parity 1) has ended from the start. A waiting warp stays together.
__device__ __forceinline__ void MbarrierWait(uint64_t* barrier, int parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(ended)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
  __syncwarp();
}

// setmaxnreg.dec, .inc: the warpgroup's registers a thread from here on, a multiple of 8. The
// kernel has __launch_bounds__(threads, 1), and each warpgroup's part is a branch of its own.
template <int kRegisters>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace skein::engine::simt
