// Hopper's operations on the emulator: products of a warpgroup, mbarriers, the fence between
// proxies, setmaxnreg. In the words of simt_hopper.h; what they do is the PTX ISA's definition.
// Beyond that, these end the process (grid.h):
//   - a product whose sums, registers of A or shared memory change before it was waited for, that
//     no fence of the registers precedes, or that is never waited for;
//   - a product that reads what cp.async or Store wrote to dynamic shared memory without
//     FenceProxyAsync of the thread that wrote it (plain assignments to it are not seen);
//   - an mbarrier that was not initialised, or was overwritten; one that never ends its phase is
//     among what "no thread can go on" lists;
//   - registers that a multiprocessor does not have.
// Sums are NaN until they were waited for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/emulator/grid.h"

namespace skein::engine::simt {

// The address of p in dynamic shared memory, which begins behind the 1 KiB that Hopper reserves.
uint32_t SharedAddressOf(const void* p, const Site& site);

// The product of a warpgroup: A from registers (`a` not null) or by descriptor.
struct WgmmaCall {
  float* d;           // [columns / 2]
  const uint32_t* a;  // [4], or null
  uint64_t a_descriptor;
  uint64_t b_descriptor;
  int columns;
  bool bf16;
  bool b_is_mn_major;
  bool accumulate;
};
void FenceWgmma(const Site& site);
void IssueWgmma(const WgmmaCall& call, const Site& site);
void CommitWgmma(const Site& site);
void WaitForWgmma(int pending_groups, const Site& site);

void InitMbarrier(uint64_t* barrier, int count, const Site& site);
void ArriveAtMbarrier(uint64_t* barrier, const Site& site);
void WaitForMbarrier(uint64_t* barrier, int parity, const Site& site);

void FenceProxy();
// Called for what threads write to shared memory by Store and cp.async.
void NoteSharedWrite(const void* p, size_t bytes, const Site& site);

void SetRegisters(int registers, bool raise, const Site& site);

}  // namespace skein::engine::simt
