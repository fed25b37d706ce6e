// simt_hopper.h on the CPU: the functions of simt_hopper_cuda.h (which has their contracts) over
// the emulator.
#pragma once

#include <type_traits>

#include "engine/cuda/emulator/hopper.h"

#define SKEIN_SIMT_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace skein::engine::simt {

inline uint32_t SharedAddress(const void* shared, SKEIN_SIMT_HERE) {
  return SharedAddressOf(shared, {"SharedAddress", file, line});
}

inline int Uniform(int value, SKEIN_SIMT_HERE) {
  if (__shfl_sync(kAllLanes, value, 0) != value) {
    KernelFailure({"Uniform", file, line}, "lanes have different values");
  }
  return value;
}

inline void WgmmaFence(SKEIN_SIMT_HERE) { FenceWgmma({"WgmmaFence", file, line}); }
inline void WgmmaCommit(SKEIN_SIMT_HERE) { CommitWgmma({"WgmmaCommit", file, line}); }
template <int kPending>
void WgmmaWait(SKEIN_SIMT_HERE) {
  WaitForWgmma(kPending, {"WgmmaWait", file, line});
}
template <int kTiles>
void Pin(float (&)[kTiles][4]) {}
template <int kFragments>
void Pin(uint32_t (&)[kFragments][4]) {}

template <typename T, int kN>
void Wgmma(float (&d)[kN / 8][4], uint64_t a, uint64_t b, bool accumulate, SKEIN_SIMT_HERE) {
  static_assert(kN == 128);
  static_assert(std::is_same_v<T, BF16> || std::is_same_v<T, Half>);
  IssueWgmma({d[0], nullptr, a, b, kN, std::is_same_v<T, BF16>, false, accumulate},
             {"Wgmma", file, line});
}
template <typename T, int kN>
void Wgmma(float (&d)[kN / 8][4], const uint32_t (&a)[4], uint64_t b, bool accumulate,
           SKEIN_SIMT_HERE) {
  static_assert(kN == 64 || kN == 128);
  static_assert(std::is_same_v<T, BF16> || std::is_same_v<T, Half>);
  IssueWgmma({d[0], a, 0, b, kN, std::is_same_v<T, BF16>, true, accumulate}, {"Wgmma", file, line});
}

inline void FenceProxyAsync() { FenceProxy(); }

inline void MbarrierInit(uint64_t* barrier, int count, SKEIN_SIMT_HERE) {
  InitMbarrier(barrier, count, {"MbarrierInit", file, line});
}
inline void MbarrierArrive(uint64_t* barrier, SKEIN_SIMT_HERE) {
  ArriveAtMbarrier(barrier, {"MbarrierArrive", file, line});
}
inline void MbarrierWait(uint64_t* barrier, int parity, SKEIN_SIMT_HERE) {
  WaitForMbarrier(barrier, parity, {"MbarrierWait", file, line});
  __syncwarp();
}

template <int kRegisters>
void LowerRegisters(SKEIN_SIMT_HERE) {
  SetRegisters(kRegisters, false, {"LowerRegisters", file, line});
}
template <int kRegisters>
void RaiseRegisters(SKEIN_SIMT_HERE) {
  SetRegisters(kRegisters, true, {"RaiseRegisters", file, line});
}

}  // namespace skein::engine::simt

#undef SKEIN_SIMT_HERE
