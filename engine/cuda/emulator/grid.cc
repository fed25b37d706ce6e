#include "engine/cuda/emulator/grid.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "engine/cuda/emulator/block.h"
#include "engine/cuda/emulator/ranks.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine::simt {
namespace {

constexpr int kThreadsMax = 1024;
constexpr unsigned kGridSideMax = 65535;

// Runs grids on one OS thread, block by block. Fibers and shared arrays are kept.
struct Runner {
  BlockRun block;
  Counters counters;
  Order order = Order::kBackward;
  std::mt19937 random;
};

// The OS thread's own, made when it is first asked for.
Runner& ThisRunner() {
  static constinit thread_local Runner* fast = nullptr;
  if (fast == nullptr) {
    static thread_local std::unique_ptr<Runner> owner = std::make_unique<Runner>();
    fast = owner.get();
  }
  return *fast;
}

void CheckShape(const GridShape& shape) {
  SKEIN_CHECK_MSG(!InKernel(), "a kernel launches a kernel");
  const int64_t size = int64_t{shape.block.x} * shape.block.y * shape.block.z;
  SKEIN_CHECK_MSG(size >= 1 && size <= kThreadsMax, "threads of a block: 1 to 1024");
  SKEIN_CHECK_MSG(shape.block.z <= 64, "block.z: at most 64");
  SKEIN_CHECK_MSG(shape.grid.x >= 1 && shape.grid.y >= 1 && shape.grid.z >= 1, "an empty grid");
  SKEIN_CHECK_MSG(
      shape.grid.x <= 0x7fffffffu && shape.grid.y <= kGridSideMax && shape.grid.z <= kGridSideMax,
      "grid: at most 2^31 - 1, 65535, 65535");
  SKEIN_CHECK_MSG(shape.shared_bytes <= kSharedBytesMax, "dynamic shared memory: at most 227 KiB");
}

void RunBlock(Runner* runner, const GridShape& shape, uint3 block,
              const std::function<void()>& thread) {
  runner->block.Start(shape, block, &thread, {&runner->counters, &runner->random, runner->order});
  while (!runner->block.ended()) runner->block.Turn();
  runner->block.Finish();
}

}  // namespace

void SetOrder(Order order) { ThisRunner().order = order; }

const Counters& GridCounters() { return ThisRunner().counters; }

void RunGrid(const GridShape& shape, const std::function<void()>& thread) {
  CheckShape(shape);
  if (GridQueue* queue = ThisQueue(); queue != nullptr) {
    queue->push_back({shape, thread});
    return;
  }
  Runner& runner = ThisRunner();
  runner.block.Prepare(shape);
  runner.random.seed(1);
  ++runner.counters.grids;
  for (unsigned z = 0; z < shape.grid.z; ++z) {
    for (unsigned y = 0; y < shape.grid.y; ++y) {
      for (unsigned x = 0; x < shape.grid.x; ++x) RunBlock(&runner, shape, {x, y, z}, thread);
    }
  }
}

const ThreadPlace& ThisThread() { return ThisBlock().current().place; }

int ThisThreadIndex() { return ThisBlock().current().index; }

CopyQueue& ThisCopies() { return ThisBlock().current().copies; }

HopperState& ThisHopper() { return ThisBlock().hopper(); }

int ThisLane() { return ThisBlock().current().index % kLanes; }

void KernelFailure(const Site& site, const char* why) {
  std::fprintf(stderr, "kernel failure: %s at %s:%d: %s: %s\n", site.what, site.file, site.line,
               ThisBlock().CurrentName().c_str(), why);
  std::abort();
}

BarrierVotes Barrier(int id, int threads, bool vote, bool same_site, const Site& site) {
  return ThisBlock().Join(id, threads, vote, same_site, site);
}

void ArriveAtBarrier(int id, int threads, const Site& site) {
  ThisBlock().Arrive(id, threads, site);
}

void WarpOperation(uint32_t mask, const void* in, void* out, Combine combine, const Site& site) {
  ThisBlock().Warp({mask, in, out, combine}, site);
}

int WarpgroupOperation(void* in, GroupCombine combine, const Site& site) {
  return ThisBlock().Warpgroup(in, combine, site);
}

void WaitUntil(const std::function<bool()>& ready, const Site& site) {
  ThisBlock().Until(ready, site);
}

unsigned char* DynamicSharedMemory() { return ThisBlock().shared().dynamic(); }

void* StaticSharedMemory(const void* key, size_t bytes, size_t alignment) {
  void* array = ThisBlock().shared().Find(key, bytes, alignment);
  if (array == nullptr) {
    KernelFailure({"SKEIN_SHARED", __FILE__, __LINE__},
                  "more than 48 KiB of static, or 227 KiB of all shared memory, or 48 KiB of all "
                  "where the launch does not ask for more");
  }
  return array;
}

void CheckShared(const void* p, size_t bytes, const Site& site) {
  if (!ThisBlock().shared().Contains(p, bytes)) KernelFailure(site, "outside the shared arrays");
}

}  // namespace skein::engine::simt
