#include "engine/cuda/emulator/grid.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/emulator/async_copy.h"
#include "engine/cuda/emulator/fiber.h"
#include "engine/cuda/emulator/hopper_state.h"
#include "engine/cuda/emulator/shared_memory.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine::simt {
namespace {

constexpr int kLanes = 32;
constexpr int kBarriers = 16;
constexpr int kThreadsMax = 1024;
constexpr unsigned kGridSideMax = 65535;

enum class State { kReady, kWaiting, kEnded };

struct WarpCall {
  uint32_t mask;
  const void* in;
  void* out;
  Combine combine;
};

struct Thread {
  ThreadPlace place;
  int index = 0;  // in the block
  State state = State::kReady;
  Site site{};               // where it waits
  WarpCall* call = nullptr;  // of the warp operation that it waits in
  const std::function<bool()>* until = nullptr;
  CopyQueue copies;
};

struct BarrierState {
  int expected = 0;
  int arrived = 0;
  int votes = 0;
  Site site{};
  std::vector<Thread*> waiting;
  BarrierVotes result;
};

// A warpgroup's threads that wait for the others of it.
struct WarpgroupCall {
  int arrived = 0;
  Site site{};
  void* in[kWarpgroupThreads] = {};
};

std::string NameOf(const Thread& thread) {
  char text[128];
  const ThreadPlace& p = thread.place;
  std::snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", p.thread_index.x,
                p.thread_index.y, p.thread_index.z, p.block_index.x, p.block_index.y,
                p.block_index.z);
  return text;
}

std::string NameOf(const Site& site) {
  return std::string(site.what) + " at " + site.file + ":" + std::to_string(site.line);
}

// Runs grids on one OS thread. Fibers and shared arrays are kept from block to block.
class Runner {
 public:
  void Run(const GridShape& shape, const std::function<void()>& thread);

  Thread& current() {
    SKEIN_CHECK_MSG(current_ != nullptr, "called from outside a kernel");
    return *current_;
  }
  SharedMemory& shared() { return shared_; }
  HopperState& hopper() { return hopper_; }
  Counters& counters() { return counters_; }
  void set_order(Order order) { order_ = order; }

  BarrierVotes Join(int id, int threads, bool vote, bool same_site, const Site& site);
  void Arrive(int id, int threads, const Site& site);
  void Warp(WarpCall call, const Site& site);
  int Warpgroup(void* in, GroupCombine combine, const Site& site);
  void Until(const std::function<bool()>& ready, const Site& site);

 private:
  static void Body(void* runner);
  void RunBlock(const GridShape& shape, uint3 block);
  void StartThreads(const GridShape& shape, uint3 block);
  void MixTurns();
  bool HasTurn(Thread* thread);
  void Wait(const Site& site);
  void Wake(Thread* thread) { thread->state = State::kReady; }
  BarrierState& Enter(int id, int threads, const Site& site);
  void Release(BarrierState* barrier);
  [[noreturn]] void ReportStuck();

  const std::function<void()>* body_ = nullptr;
  Thread* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Thread> threads_;
  std::vector<uint32_t> warps_;  // lanes that wait in a warp operation
  std::vector<WarpgroupCall> warpgroups_;
  std::vector<int> turns_;
  BarrierState barriers_[kBarriers];
  SharedMemory shared_;
  HopperState hopper_;
  Counters counters_;
  Order order_ = Order::kBackward;
  std::mt19937 random_;
  int ended_ = 0;
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

void Runner::Body(void* self) {
  auto* own = static_cast<Runner*>(self);
  (*own->body_)();
  Thread& thread = own->current();
  RequireNoCopiesPending(thread.copies);
  thread.state = State::kEnded;
  ++own->ended_;
}

void Runner::Run(const GridShape& shape, const std::function<void()>& thread) {
  SKEIN_CHECK_MSG(current_ == nullptr, "a kernel launches a kernel");
  const int64_t size = int64_t{shape.block.x} * shape.block.y * shape.block.z;
  SKEIN_CHECK_MSG(size >= 1 && size <= kThreadsMax, "threads of a block: 1 to 1024");
  SKEIN_CHECK_MSG(shape.block.z <= 64, "block.z: at most 64");
  SKEIN_CHECK_MSG(shape.grid.x >= 1 && shape.grid.y >= 1 && shape.grid.z >= 1, "an empty grid");
  SKEIN_CHECK_MSG(
      shape.grid.x <= 0x7fffffffu && shape.grid.y <= kGridSideMax && shape.grid.z <= kGridSideMax,
      "grid: at most 2^31 - 1, 65535, 65535");
  SKEIN_CHECK_MSG(shape.shared_bytes <= kSharedBytesMax, "dynamic shared memory: at most 227 KiB");
  body_ = &thread;
  while (fibers_.size() < static_cast<size_t>(size)) fibers_.push_back(std::make_unique<Fiber>());
  shared_.Reset(shape.shared_bytes, shape.asks_for_shared);
  random_.seed(1);
  ++counters_.grids;
  for (unsigned z = 0; z < shape.grid.z; ++z) {
    for (unsigned y = 0; y < shape.grid.y; ++y) {
      for (unsigned x = 0; x < shape.grid.x; ++x) RunBlock(shape, {x, y, z});
    }
  }
}

void Runner::StartThreads(const GridShape& shape, uint3 block) {
  const unsigned size = shape.block.x * shape.block.y * shape.block.z;
  threads_.assign(size, Thread{});
  warps_.assign((size + kLanes - 1) / kLanes, 0);
  warpgroups_.assign(size / kWarpgroupThreads, {});
  ResetHopper(&hopper_, static_cast<int>(size), shape.shared_bytes);
  counters_.threads += size;
  ended_ = 0;
  for (unsigned i = 0; i < size; ++i) {
    const uint3 index = {i % shape.block.x, i / shape.block.x % shape.block.y,
                         i / shape.block.x / shape.block.y};
    threads_[i].place = {index, block, shape.block, shape.grid};
    threads_[i].index = static_cast<int>(i);
    fibers_[i]->Start(Body, this);
  }
  turns_.resize(size);
  std::iota(turns_.begin(), turns_.end(), 0);
  if (order_ == Order::kBackward) std::reverse(turns_.begin(), turns_.end());
}

void Runner::MixTurns() {
  if (order_ != Order::kShuffled) return;
  for (size_t i = turns_.size(); i > 1; --i) std::swap(turns_[i - 1], turns_[random_() % i]);
}

void Runner::RunBlock(const GridShape& shape, uint3 block) {
  for (BarrierState& barrier : barriers_) barrier = {};
  shared_.Poison();
  StartThreads(shape, block);
  const int size = static_cast<int>(threads_.size());
  while (ended_ < size) {
    bool any = false;
    MixTurns();
    for (const int i : turns_) {
      if (!HasTurn(&threads_[i])) continue;
      any = true;
      fibers_[i]->Resume();
    }
    if (!any) ReportStuck();
  }
  current_ = threads_.data();
  RequireNoProductsPending(hopper_);
  if (!shared_.MarginsIntact()) {
    KernelFailure({"shared memory", __FILE__, __LINE__}, "written past the end of an array");
  }
  current_ = nullptr;
}

// Makes a thread that can go on the current one.
bool Runner::HasTurn(Thread* thread) {
  if (thread->state == State::kEnded) return false;
  current_ = thread;
  if (thread->until != nullptr && (*thread->until)()) thread->state = State::kReady;
  return thread->state == State::kReady;
}

void Runner::Wait(const Site& site) {
  Thread& thread = current();
  thread.site = site;
  thread.state = State::kWaiting;
  ++counters_.waits;
  fibers_[thread.index]->Suspend();
}

BarrierState& Runner::Enter(int id, int threads, const Site& site) {
  if (id < 0 || id >= kBarriers) KernelFailure(site, "barriers are 0 to 15");
  const int size = static_cast<int>(threads_.size());
  const int expected = threads == 0 ? size : threads;
  if (threads != 0 && (threads % kLanes != 0 || threads > size)) {
    KernelFailure(site, "a named barrier is for a multiple of 32 of the block's threads");
  }
  BarrierState& barrier = barriers_[id];
  if (barrier.arrived > 0 && barrier.expected != expected) {
    KernelFailure(site, ("another number of threads than " + NameOf(barrier.site)).c_str());
  }
  if (barrier.arrived == 0) barrier.site = site;
  barrier.expected = expected;
  ++barrier.arrived;
  return barrier;
}

void Runner::Release(BarrierState* barrier) {
  barrier->result = {barrier->votes, barrier->expected};
  for (Thread* thread : barrier->waiting) Wake(thread);
  barrier->waiting.clear();
  barrier->arrived = 0;
  barrier->votes = 0;
}

BarrierVotes Runner::Join(int id, int threads, bool vote, bool same_site, const Site& site) {
  BarrierState& barrier = Enter(id, threads, site);
  if (same_site && (barrier.site.line != site.line || std::strcmp(barrier.site.file, site.file))) {
    KernelFailure(site, ("other threads of the block wait in " + NameOf(barrier.site)).c_str());
  }
  barrier.votes += vote ? 1 : 0;
  if (barrier.arrived == barrier.expected) {
    Release(&barrier);
  } else {
    barrier.waiting.push_back(&current());
    Wait(site);
  }
  return barrier.result;
}

void Runner::Arrive(int id, int threads, const Site& site) {
  BarrierState& barrier = Enter(id, threads, site);
  if (barrier.arrived == barrier.expected) Release(&barrier);
}

void Runner::Warp(WarpCall call, const Site& site) {
  Thread& own = current();
  const int first = own.index / kLanes * kLanes;
  if ((call.mask >> (own.index - first) & 1u) == 0) KernelFailure(site, "not in its own mask");
  own.call = &call;
  own.site = site;
  uint32_t& waiting = warps_[static_cast<size_t>(own.index / kLanes)];
  waiting |= 1u << (own.index - first);
  if ((waiting & call.mask) != call.mask) return Wait(site);
  const void* in[kLanes] = {};
  void* out[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((call.mask >> lane & 1u) == 0) continue;
    const Thread& thread = threads_[static_cast<size_t>(first + lane)];
    if (thread.call->mask != call.mask) return Wait(site);
    if (thread.call->combine != call.combine || thread.site.line != site.line) {
      KernelFailure(site, ("another lane waits in " + NameOf(thread.site)).c_str());
    }
    in[lane] = thread.call->in;
    out[lane] = thread.call->out;
  }
  call.combine(call.mask, in, out);
  waiting &= ~call.mask;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((call.mask >> lane & 1u) == 0) continue;
    threads_[static_cast<size_t>(first + lane)].call = nullptr;
    Wake(&threads_[static_cast<size_t>(first + lane)]);
  }
}

int Runner::Warpgroup(void* in, GroupCombine combine, const Site& site) {
  Thread& own = current();
  const auto group = static_cast<size_t>(own.index / kWarpgroupThreads);
  if (group >= warpgroups_.size()) KernelFailure(site, "not in a warpgroup of four warps");
  WarpgroupCall& call = warpgroups_[group];
  if (call.arrived == 0) call.site = site;
  if (call.site.line != site.line || std::strcmp(call.site.what, site.what) != 0) {
    KernelFailure(site, ("others of the warpgroup wait in " + NameOf(call.site)).c_str());
  }
  call.in[own.index % kWarpgroupThreads] = in;
  if (++call.arrived < kWarpgroupThreads) {
    Wait(site);
  } else {
    call.arrived = 0;
    if (combine != nullptr) combine(call.in);
    Thread* first = &threads_[group * kWarpgroupThreads];
    std::for_each(first, first + kWarpgroupThreads, [&](Thread& thread) { Wake(&thread); });
  }
  return static_cast<int>(group);
}

void Runner::Until(const std::function<bool()>& ready, const Site& site) {
  if (ready()) return;
  Thread& own = current();
  own.until = &ready;
  Wait(site);
  own.until = nullptr;
}

// Groups the threads by what they wait in, and names the first of each.
void Runner::ReportStuck() {
  std::fprintf(stderr, "kernel failure: no thread can go on:\n");
  std::vector<bool> told(threads_.size(), false);
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (told[i]) continue;
    int alike = 0;
    for (size_t j = i; j < threads_.size(); ++j) {
      const bool same =
          threads_[j].state == threads_[i].state &&
          (threads_[i].state == State::kEnded || threads_[j].site == threads_[i].site);
      if (same) told[j] = true;
      alike += same ? 1 : 0;
    }
    const std::string where = threads_[i].state == State::kEnded
                                  ? std::string("ended")
                                  : "wait in " + NameOf(threads_[i].site);
    std::fprintf(stderr, "  %d threads %s, the first %s\n", alike, where.c_str(),
                 NameOf(threads_[i]).c_str());
  }
  std::abort();
}

}  // namespace

void SetOrder(Order order) { ThisRunner().set_order(order); }

const Counters& GridCounters() { return ThisRunner().counters(); }

void RunGrid(const GridShape& shape, const std::function<void()>& thread) {
  ThisRunner().Run(shape, thread);
}

const ThreadPlace& ThisThread() { return ThisRunner().current().place; }

int ThisThreadIndex() { return ThisRunner().current().index; }

CopyQueue& ThisCopies() { return ThisRunner().current().copies; }

HopperState& ThisHopper() { return ThisRunner().hopper(); }

int ThisLane() { return ThisRunner().current().index % kLanes; }

void KernelFailure(const Site& site, const char* why) {
  std::fprintf(stderr, "kernel failure: %s: %s: %s\n", NameOf(site).c_str(),
               NameOf(ThisRunner().current()).c_str(), why);
  std::abort();
}

BarrierVotes Barrier(int id, int threads, bool vote, bool same_site, const Site& site) {
  return ThisRunner().Join(id, threads, vote, same_site, site);
}

void ArriveAtBarrier(int id, int threads, const Site& site) {
  ThisRunner().Arrive(id, threads, site);
}

void WarpOperation(uint32_t mask, const void* in, void* out, Combine combine, const Site& site) {
  ThisRunner().Warp({mask, in, out, combine}, site);
}

int WarpgroupOperation(void* in, GroupCombine combine, const Site& site) {
  return ThisRunner().Warpgroup(in, combine, site);
}

void WaitUntil(const std::function<bool()>& ready, const Site& site) {
  ThisRunner().Until(ready, site);
}

unsigned char* DynamicSharedMemory() { return ThisRunner().shared().dynamic(); }

void* StaticSharedMemory(const void* key, size_t bytes, size_t alignment) {
  void* array = ThisRunner().shared().Find(key, bytes, alignment);
  if (array == nullptr) {
    KernelFailure({"SKEIN_SHARED", __FILE__, __LINE__},
                  "more than 48 KiB of static, or 227 KiB of all shared memory, or 48 KiB of all "
                  "where the launch does not ask for more");
  }
  return array;
}

void CheckShared(const void* p, size_t bytes, const Site& site) {
  if (!ThisRunner().shared().Contains(p, bytes)) KernelFailure(site, "outside the shared arrays");
}

}  // namespace skein::engine::simt
