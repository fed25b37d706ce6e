// simt_peer.h on the GPU. emulator/peer_emulated.h has the same functions. Compiled by nvcc only.
#pragma once

#include <cstdint>

namespace skein::engine::simt {

// A plain (weak) vector move; p is aligned to V, whose size is a multiple of 4. A load sees what
// another GPU stored if that was released, and acquired by this thread or by one that passed a
// barrier of the block with it since.
template <typename V>
__device__ __forceinline__ V PeerLoad(const void* p) {
  return *static_cast<const V*>(p);
}
template <typename V>
__device__ __forceinline__ void PeerStore(void* p, V value) {
  *static_cast<V*>(p) = value;
}

// st.release.sys: whoever acquires the value sees what this thread stored, and what others of the
// block stored before a barrier that it has passed with them.
__device__ __forceinline__ void PeerRelease(uint32_t* p, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
// ld.acquire.sys.
__device__ __forceinline__ uint32_t PeerAcquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

// Atomic words that order nothing else.
__device__ __forceinline__ void PeerStoreRelaxed(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t PeerLoadRelaxed(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

// The GPU's clock, which goes on while a thread waits; its step is a microsecond or less.
__device__ __forceinline__ int64_t NowNs() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace skein::engine::simt
