#include "engine/cuda/emulator/hopper.h"

#include <cstring>
#include <string>

#include "engine/cuda/emulator/hopper_state.h"

namespace skein::engine::simt {
namespace {

constexpr uint32_t kSystemSharedBytes = 1024;
constexpr size_t kGranule = 16;
constexpr uint64_t kMbarrierMark = 0x6d62617272696572u;
constexpr int kMbarrierCountMax = (1 << 20) - 1;
constexpr int kRegistersOfAProcessor = 64 << 10;

Mbarrier& MbarrierAt(const uint64_t* barrier, const Site& site) {
  auto& all = ThisHopper().mbarriers;
  const auto at = all.find(barrier);
  if (at == all.end()) KernelFailure(site, "no mbarrier was initialised here");
  if (*barrier != kMbarrierMark) KernelFailure(site, "the mbarrier was overwritten");
  return at->second;
}

}  // namespace

void ResetHopper(HopperState* state, int threads, size_t dynamic_bytes) {
  const auto size = static_cast<size_t>(threads);
  const int each = kRegistersOfAProcessor / threads / 8 * 8;
  state->wgmma.assign(size / kWarpgroupThreads, {});
  state->registers.assign(size / kWarpgroupThreads, each);
  state->mbarriers.clear();
  state->writes.assign((dynamic_bytes + kGranule - 1) / kGranule, {});
  state->unfenced.resize(size);
  for (auto& places : state->unfenced) places.clear();
}

uint32_t SharedAddressOf(const void* p, const Site& site) {
  CheckShared(p, 1, site);
  const std::ptrdiff_t offset = static_cast<const unsigned char*>(p) - DynamicSharedMemory();
  if (offset < 0 || static_cast<size_t>(offset) >= ThisHopper().writes.size() * kGranule) {
    KernelFailure(site, "not in dynamic shared memory");
  }
  return kSystemSharedBytes + static_cast<uint32_t>(offset);
}

void NoteSharedWrite(const void* p, size_t bytes, const Site& site) {
  HopperState& state = ThisHopper();
  const std::ptrdiff_t offset = static_cast<const unsigned char*>(p) - DynamicSharedMemory();
  if (offset < 0 || static_cast<size_t>(offset) >= state.writes.size() * kGranule) return;
  const int thread = ThisThreadIndex();
  const size_t end = (static_cast<size_t>(offset) + bytes + kGranule - 1) / kGranule;
  for (size_t i = static_cast<size_t>(offset) / kGranule; i < end; ++i) {
    if (state.writes[i].thread != thread) {
      state.unfenced[static_cast<size_t>(thread)].push_back(static_cast<uint32_t>(i));
    }
    state.writes[i] = {thread, site};
  }
}

void FenceProxy() {
  HopperState& state = ThisHopper();
  const int thread = ThisThreadIndex();
  auto& places = state.unfenced[static_cast<size_t>(thread)];
  for (const uint32_t i : places) {
    if (state.writes[i].thread == thread) state.writes[i].thread = -1;
  }
  places.clear();
}

void InitMbarrier(uint64_t* barrier, int count, const Site& site) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 != 0) KernelFailure(site, "it is not aligned");
  CheckShared(barrier, 8, site);
  if (count < 1 || count > kMbarrierCountMax) KernelFailure(site, "count: 1 to 2^20 - 1");
  ThisHopper().mbarriers[barrier] = {count, count};
  *barrier = kMbarrierMark;
}

void ArriveAtMbarrier(uint64_t* barrier, const Site& site) {
  Mbarrier& own = MbarrierAt(barrier, site);
  if (--own.pending > 0) return;
  own.pending = own.count;
  ++own.phase;
}

void WaitForMbarrier(uint64_t* barrier, int parity, const Site& site) {
  if (parity != 0 && parity != 1) KernelFailure(site, "a parity is 0 or 1");
  WaitUntil([&] { return MbarrierAt(barrier, site).phase % 2 != parity; }, site);
}

void SetRegisters(int registers, bool raise, const Site& site) {
  if (registers < 24 || registers > 256 || registers % 8 != 0) {
    KernelFailure(site, "registers: a multiple of 8 from 24 to 256");
  }
  HopperState& state = ThisHopper();
  int& own = state.registers[static_cast<size_t>(WarpgroupOperation(nullptr, nullptr, site))];
  if (raise ? registers < own : registers > own) {
    KernelFailure(site, raise ? "has more registers already" : "has fewer registers already");
  }
  const auto fits = [&] {
    int total = (registers - own) * kWarpgroupThreads;
    for (const int other : state.registers) total += other * kWarpgroupThreads;
    return total <= kRegistersOfAProcessor;
  };
  WaitUntil(fits, site);
  own = registers;
}

}  // namespace skein::engine::simt
