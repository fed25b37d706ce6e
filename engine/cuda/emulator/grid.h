// Runs the blocks of a grid one after another, each thread of a block on a fiber of its own: what
// simt_emulated.h stands on, and what tests set. What a kernel must not do ends the process with a
// line that names the block, the threads and the place:
//   - a barrier or warp operation that some of its threads never reach (they ended, or wait
//     elsewhere), or that they reach at different places;
//   - a cp.async that is never waited for, misaligned vector moves, too much shared memory (static
//     and dynamic together, too) or too many threads, writes past the end of shared memory;
//   - what hopper.h lists.
// Shared memory holds 0xff (NaN in every float type) when a block starts, and so does the target of
// a cp.async until it was waited for. A missing barrier between two threads shows up when the
// later one is run first: run a kernel in more than one Order.
//
// A grid runs on the calling OS thread; several OS threads may run grids at once. ranks.h runs the
// grids of several ranks on one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/cuda/emulator/cuda_names.h"

namespace skein::engine::simt {

// In which a block's threads get their turns.
enum class Order {
  kForward,
  kBackward,
  kShuffled,  // anew in each round, the same in each run
};

// Sets the order of grids that this OS thread runs from now on; at first kBackward.
void SetOrder(Order order);

// Threads, and barriers and warp operations passed, in the grids this OS thread ran so far.
struct Counters {
  int64_t grids = 0;
  int64_t threads = 0;
  int64_t waits = 0;
};
const Counters& GridCounters();

struct GridShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  bool asks_for_shared = true;  // for more shared memory than the 48 KiB of any launch
};

// Calls `thread` as every thread of the grid.
void RunGrid(const GridShape& shape, const std::function<void()>& thread);

// The functions below are called from within a kernel.

struct ThreadPlace {
  uint3 thread_index;
  uint3 block_index;
  dim3 block_size;
  dim3 grid_size;
};
const ThreadPlace& ThisThread();
int ThisThreadIndex();  // in the block
int ThisLane();

// A place in the kernel's source.
struct Site {
  const char* what;
  const char* file;
  int line;
  bool operator==(const Site&) const = default;
};

// Ends the process, naming thread and site.
[[noreturn]] void KernelFailure(const Site& site, const char* why);

struct BarrierVotes {
  int votes = 0;
  int threads = 0;
};
// Waits until `threads` threads are at barrier `id`, and says how many voted. All of them at the
// same site when `same_site`; threads 0: the whole block.
BarrierVotes Barrier(int id, int threads, bool vote, bool same_site, const Site& site);
// Counts as one of the barrier's threads without waiting.
void ArriveAtBarrier(int id, int threads, const Site& site);

// Called once when all lanes of `mask` are there, with their `in` and `out` (null for others).
using Combine = void (*)(uint32_t mask, const void* const (&in)[32], void* const (&out)[32]);
// Waits until all lanes of `mask` called it at the same site.
void WarpOperation(uint32_t mask, const void* in, void* out, Combine combine, const Site& site);

// Called once when all 128 threads of a warpgroup are there, with what each of them has given.
using GroupCombine = void (*)(void* const (&in)[128]);
// Waits until all threads of the calling thread's warpgroup called it at the same site, and gives
// the warpgroup's index in the block. `combine` may be null.
int WarpgroupOperation(void* in, GroupCombine combine, const Site& site);

// Waits until `ready`, which is asked at each of the thread's turns.
void WaitUntil(const std::function<bool()>& ready, const Site& site);

unsigned char* DynamicSharedMemory();
// The block's array that belongs to `key`, made at first use.
void* StaticSharedMemory(const void* key, size_t bytes, size_t alignment);
// Ends the process unless [p, p + bytes) is inside one of the block's shared arrays.
void CheckShared(const void* p, size_t bytes, const Site& site);

void AsyncCopy(void* to_shared, const void* from, int bytes, int source_bytes, const Site& site);
void CommitAsyncCopies();
void WaitForAsyncCopies(int pending_groups);

}  // namespace skein::engine::simt
