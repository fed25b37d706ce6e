// simt.h on the GPU: each wrapper is the one instruction that its comment names, with the operand
// layouts of the PTX ISA. emulator/simt_emulated.h has the same functions. Compiled by nvcc only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>

// A block's static shared array: SKEIN_SHARED(float, sums, [32]), SKEIN_SHARED(int, flag, ).
#define SKEIN_SHARED(type, name, extents) __shared__ type name extents

namespace skein::engine::simt {

// The block's dynamic shared memory, as many bytes as Launch was given.
__device__ __forceinline__ unsigned char* DynamicShared() {
  extern __shared__ __align__(1024) unsigned char skein_dynamic_shared[];
  return skein_dynamic_shared;
}

__device__ __forceinline__ float Widen(float value) { return value; }
__device__ __forceinline__ float Widen(BF16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ __forceinline__ float Widen(Half value) {
  return __half2float(__ushort_as_half(value.bits));
}

// Rounds to nearest even.
template <typename T>
__device__ T Narrow(float value);
template <>
__device__ __forceinline__ float Narrow<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ BF16 Narrow<BF16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}
template <>
__device__ __forceinline__ Half Narrow<Half>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}

// Two neighbours in a register, the first in the lower half.
template <typename T>
__device__ uint32_t Narrow2(float low, float high);
template <>
__device__ __forceinline__ uint32_t Narrow2<BF16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t Narrow2<Half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <typename T>
__device__ float2 Widen2(uint32_t pair);
template <>
__device__ __forceinline__ float2 Widen2<BF16>(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
template <>
__device__ __forceinline__ float2 Widen2<Half>(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// A vector move; p is aligned to V.
template <typename V>
__device__ __forceinline__ V Load(const void* p) {
  return *static_cast<const V*>(p);
}
template <typename V>
__device__ __forceinline__ void Store(void* p, V value) {
  *static_cast<V*>(p) = value;
}

// ex2.approx.ftz, lg2.approx.ftz.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float Log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The same value, of which the compiler knows nothing: what is computed from it stays where it is
// used, where the compiler would rather compute it once before a loop and keep it in registers.
__device__ __forceinline__ int Opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// bar.sync id, threads: named barrier 1 … 15 of `threads` threads, a multiple of 32.
__device__ __forceinline__ void BarrierSync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// bar.arrive id, threads: counts as arrived and goes on.
__device__ __forceinline__ void BarrierArrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// ldmatrix.sync.aligned.m8n8.xN.shared.b16: 8x8 matrices of 16-bit elements. Lane 8 i + j gives the
// address of row j (16 bytes, aligned) of matrix i; lanes past the last matrix give any. Register i
// of lane l is then elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i, or, with
// kTranspose, of column l / 4.
template <bool kTranspose = false>
__device__ __forceinline__ void LdMatrix4(uint32_t (&r)[4], const void* row) {
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
}
template <bool kTranspose = false>
__device__ __forceinline__ void LdMatrix2(uint32_t (&r)[2], const void* row) {
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(SharedAddress(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
}

// mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32: d = a · b + d, a 16x16, b 16x8, d 16x8, T BF16 or
// Half. With g = lane / 4 and t = lane % 4:
//   a[0] (g, 2t)  a[1] (g + 8, 2t)  a[2] (g, 2t + 8)  a[3] (g + 8, 2t + 8)   each with the next
//   column in its upper half;
//   b[0] rows 2t, 2t + 1 of column g   b[1] rows 2t + 8, 2t + 9 of column g;
//   d[0] (g, 2t)  d[1] (g, 2t + 1)  d[2] (g + 8, 2t)  d[3] (g + 8, 2t + 1).
template <typename T>
__device__ void Mma16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
__device__ __forceinline__ void Mma16816<BF16>(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void Mma16816<Half>(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// cp.async.cg.shared.global 16: both aligned to 16. Only the first source_bytes are read (0: `from`
// is not touched), the rest of the 16 become zero. In shared memory once this thread waited for its
// group; for other threads after a barrier that follows.
__device__ __forceinline__ void CpAsync16(void* to_shared, const void* from,
                                          int source_bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to_shared)),
               "l"(from), "r"(source_bytes)
               : "memory");
}
// cp.async.ca.shared.global 4, 8: as above, aligned to 4 and 8.
__device__ __forceinline__ void CpAsync4(void* to_shared, const void* from, int source_bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(to_shared)),
               "l"(from), "r"(source_bytes)
               : "memory");
}
__device__ __forceinline__ void CpAsync8(void* to_shared, const void* from, int source_bytes = 8) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(SharedAddress(to_shared)),
               "l"(from), "r"(source_bytes)
               : "memory");
}
// Closes the group of this thread's copies since the last commit (it may be empty).
__device__ __forceinline__ void CpAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most the kPending newest of this thread's groups are on their way.
template <int kPending>
__device__ __forceinline__ void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Of the current device.
inline int Multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;  // the launch will say what is wrong
  }
  return count;
}

// Whether the launch went well; else LaunchFailed, which may return.
inline bool CheckLaunch(cudaError_t error, const void* kernel) {
  if (error == cudaSuccess) return true;
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) != cudaSuccess || name == nullptr) name = "a kernel";
  cudaGetLastError();  // forgets it: it is told here
  LaunchFailed(std::string("launch of ") + name + ": " + cudaGetErrorString(error) + " (" +
               cudaGetErrorName(error) + ")");
  return false;
}

// kernel<<<grid, block, shared_bytes, stream>>>(args...), on the current device.
template <typename... Parameters, typename... Args>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            CudaStream stream, Args&&... args) {
  const void* address = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kSharedBytesUnasked &&
      !CheckLaunch(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared_bytes)),
                   address)) {
    return;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  CheckLaunch(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), address);
}

}  // namespace skein::engine::simt
