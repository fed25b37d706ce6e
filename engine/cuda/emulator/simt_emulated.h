// simt.h on the CPU: the functions of simt_cuda.h (which has their contracts) and CUDA's own names,
// over the emulator.
#pragma once

#include <tuple>
#include <type_traits>

#include "engine/base/f16.h"
#include "engine/cuda/emulator/cuda_names.h"
#include "engine/cuda/emulator/grid.h"
#include "engine/cuda/emulator/hopper.h"
#include "engine/cuda/emulator/recording.h"
#include "engine/cuda/emulator/warp.h"

#define threadIdx (::skein::engine::simt::ThisThread().thread_index)
#define blockIdx (::skein::engine::simt::ThisThread().block_index)
#define blockDim (::skein::engine::simt::ThisThread().block_size)
#define gridDim (::skein::engine::simt::ThisThread().grid_size)

#define SKEIN_SHARED(type, name, extents)                                            \
  static const char name##_key = 0;                                                  \
  using name##_type = type extents;                                                  \
  auto& name = *static_cast<name##_type*>(::skein::engine::simt::StaticSharedMemory( \
      &name##_key, sizeof(name##_type), alignof(name##_type)))

namespace skein::engine::simt {

inline unsigned char* DynamicShared() { return DynamicSharedMemory(); }

inline float Widen(float value) { return value; }
inline float Widen(BF16 value) { return ToFloat(value); }
inline float Widen(Half value) { return static_cast<float>(std::bit_cast<F16>(value.bits)); }

template <typename T>
T Narrow(float value) {
  if constexpr (std::is_same_v<T, BF16>) {
    return ToBF16(value);
  } else if constexpr (std::is_same_v<T, Half>) {
    return {std::bit_cast<uint16_t>(static_cast<F16>(value))};
  } else {
    static_assert(std::is_same_v<T, float>);
    return value;
  }
}

template <typename T>
uint32_t Narrow2(float low, float high) {
  return Narrow<T>(low).bits | (uint32_t{Narrow<T>(high).bits} << 16);
}
template <typename T>
float2 Widen2(uint32_t pair) {
  return {Widen(T{static_cast<uint16_t>(pair & 0xffffu)}),
          Widen(T{static_cast<uint16_t>(pair >> 16)})};
}

template <typename V>
V Load(const void* p, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (reinterpret_cast<uintptr_t>(p) % alignof(V) != 0) {
    KernelFailure({"Load", file, line}, "the address is not aligned");
  }
  return *static_cast<const V*>(p);
}
template <typename V>
void Store(void* p, V value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (reinterpret_cast<uintptr_t>(p) % alignof(V) != 0) {
    KernelFailure({"Store", file, line}, "the address is not aligned");
  }
  *static_cast<V*>(p) = value;
  NoteSharedWrite(p, sizeof(V), {"Store", file, line});
}

inline float Exp2(float x) { return std::exp2(x); }
inline float Log2(float x) { return std::log2(x); }
inline int Opaque(int value) { return value; }

inline void BarrierSync(int id, int threads, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  Barrier(id, threads, false, false, {"BarrierSync", file, line});
}
inline void BarrierArrive(int id, int threads, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  ArriveAtBarrier(id, threads, {"BarrierArrive", file, line});
}

template <bool kTranspose = false>
void LdMatrix4(uint32_t (&r)[4], const void* row, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) {
  LoadMatrices(r, 4, row, kTranspose, {"LdMatrix4", file, line});
}
template <bool kTranspose = false>
void LdMatrix2(uint32_t (&r)[2], const void* row, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) {
  LoadMatrices(r, 2, row, kTranspose, {"LdMatrix2", file, line});
}

template <typename T>
void Mma16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(std::is_same_v<T, BF16> || std::is_same_v<T, Half>);
  MultiplyFragments(d, a, b, std::is_same_v<T, BF16>, {"Mma16816", file, line});
}

inline void CpAsync16(void* to, const void* from, int source_bytes = 16,
                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  AsyncCopy(to, from, 16, source_bytes, {"CpAsync16", file, line});
}
inline void CpAsync8(void* to, const void* from, int source_bytes = 8,
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  AsyncCopy(to, from, 8, source_bytes, {"CpAsync8", file, line});
}
inline void CpAsync4(void* to, const void* from, int source_bytes = 4,
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  AsyncCopy(to, from, 4, source_bytes, {"CpAsync4", file, line});
}
inline void CpAsyncCommit() { CommitAsyncCopies(); }
template <int kPending>
void CpAsyncWait() {
  WaitForAsyncCopies(kPending);
}

// Few, so that a block gets several items.
inline int Multiprocessors() { return 3; }

template <typename... Parameters, typename... Args>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            CudaStream stream, Args&&... args) {
  const std::tuple<std::decay_t<Parameters>...> all(static_cast<Parameters>(args)...);
  const bool asks = shared_bytes > kSharedBytesUnasked;
  RunOrRecord(stream, reinterpret_cast<const void*>(kernel), [=] {
    RunGrid({grid, block, shared_bytes, asks}, [kernel, all] { std::apply(kernel, all); });
  });
}

}  // namespace skein::engine::simt

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  skein::engine::simt::Barrier(0, 0, false, true, {"__syncthreads", file, line});
}
inline int __syncthreads_count(int vote, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return skein::engine::simt::Barrier(0, 0, vote != 0, true, {"__syncthreads_count", file, line})
      .votes;
}
inline int __syncthreads_or(int vote, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return skein::engine::simt::Barrier(0, 0, vote != 0, true, {"__syncthreads_or", file, line})
             .votes > 0;
}
inline int __syncthreads_and(int vote, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  const auto all =
      skein::engine::simt::Barrier(0, 0, vote != 0, true, {"__syncthreads_and", file, line});
  return all.votes == all.threads;
}
