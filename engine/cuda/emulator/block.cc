#include "engine/cuda/emulator/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "scheduler/vocabulary/check.h"

namespace skein::engine::simt {
namespace {

constinit thread_local BlockRun* running = nullptr;
constinit thread_local Thread* running_thread = nullptr;

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

}  // namespace

BlockRun& ThisBlock() {
  SKEIN_CHECK_MSG(running != nullptr, "called from outside a kernel");
  return *running;
}

bool InKernel() { return running != nullptr; }

void BlockRun::Body(void* self) {
  auto* own = static_cast<BlockRun*>(self);
  (*own->body_)();
  Thread& thread = own->current();
  RequireNoCopiesPending(thread.copies);
  thread.state = State::kEnded;
  ++own->ended_;
}

void BlockRun::Start(const GridShape& shape, uint3 block, const std::function<void()>* body,
                     const BlockSurroundings& around) {
  const unsigned size = shape.block.x * shape.block.y * shape.block.z;
  body_ = body;
  around_ = around;
  for (BarrierState& barrier : barriers_) barrier = {};
  while (fibers_.size() < size) fibers_.push_back(std::make_unique<Fiber>());
  threads_.assign(size, Thread{});
  warps_.assign((size + kLanes - 1) / kLanes, 0);
  warpgroups_.assign(size / kWarpgroupThreads, {});
  ResetHopper(&hopper_, static_cast<int>(size), shape.shared_bytes);
  shared_.Poison();
  around_.counters->threads += size;
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
  if (around_.order == Order::kBackward) std::reverse(turns_.begin(), turns_.end());
}

void BlockRun::MixTurns() {
  if (around_.order != Order::kShuffled) return;
  for (size_t i = turns_.size(); i > 1; --i) {
    std::swap(turns_[i - 1], turns_[(*around_.random)() % i]);
  }
}

void BlockRun::Turn() {
  bool any = false;
  MixTurns();
  running = this;
  for (const int i : turns_) {
    if (!HasTurn(&threads_[i])) continue;
    any = true;
    fibers_[i]->Resume();
  }
  if (!any) ReportStuck();
  running_thread = nullptr;
  running = nullptr;
}

void BlockRun::Finish() {
  running = this;
  running_thread = threads_.data();
  RequireNoProductsPending(hopper_);
  if (!shared_.MarginsIntact()) {
    KernelFailure({"shared memory", __FILE__, __LINE__}, "written past the end of an array");
  }
  running_thread = nullptr;
  running = nullptr;
}

// Makes a thread that can go on the current one.
bool BlockRun::HasTurn(Thread* thread) {
  if (thread->state == State::kEnded) return false;
  running_thread = thread;
  if (thread->until != nullptr && (*thread->until)()) thread->state = State::kReady;
  return thread->state == State::kReady;
}

Thread& BlockRun::current() { return *running_thread; }

std::string BlockRun::CurrentName() const {
  return (around_.rank < 0 ? "" : "rank " + std::to_string(around_.rank) + ", ") +
         NameOf(*running_thread);
}

void BlockRun::Yield() { fibers_[static_cast<size_t>(current().index)]->Suspend(); }

void BlockRun::Wait(const Site& site) {
  Thread& thread = current();
  thread.site = site;
  thread.state = State::kWaiting;
  ++around_.counters->waits;
  fibers_[static_cast<size_t>(thread.index)]->Suspend();
}

BarrierState& BlockRun::Enter(int id, int threads, const Site& site) {
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
  if (around_.peers != nullptr) around_.peers->Give(&current().view, &barrier.given);
  return barrier;
}

void BlockRun::Release(BarrierState* barrier) {
  barrier->result = {barrier->votes, barrier->expected};
  if (around_.peers != nullptr) {
    const SeenPointer all = around_.peers->Close(&barrier->given);
    current().view.seen = all;
    for (Thread* thread : barrier->waiting) thread->view.seen = all;
  }
  for (Thread* thread : barrier->waiting) Wake(thread);
  barrier->waiting.clear();
  barrier->arrived = 0;
  barrier->votes = 0;
}

BarrierVotes BlockRun::Join(int id, int threads, bool vote, bool same_site, const Site& site) {
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

void BlockRun::Arrive(int id, int threads, const Site& site) {
  BarrierState& barrier = Enter(id, threads, site);
  if (barrier.arrived == barrier.expected) Release(&barrier);
}

void BlockRun::Warp(WarpCall call, const Site& site) {
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

int BlockRun::Warpgroup(void* in, GroupCombine combine, const Site& site) {
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

void BlockRun::Until(const std::function<bool()>& ready, const Site& site) {
  if (ready()) return;
  Thread& own = current();
  own.until = &ready;
  Wait(site);
  own.until = nullptr;
}

// Groups the threads by what they wait in, and names the first of each.
void BlockRun::ReportStuck() {
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

}  // namespace skein::engine::simt
