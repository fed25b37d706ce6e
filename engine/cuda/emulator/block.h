// One block of a grid, each of its threads on a fiber. Internal to the emulator; kernels call
// grid.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/emulator/async_copy.h"
#include "engine/cuda/emulator/fiber.h"
#include "engine/cuda/emulator/grid.h"
#include "engine/cuda/emulator/hopper_state.h"
#include "engine/cuda/emulator/peer_memory.h"
#include "engine/cuda/emulator/shared_memory.h"

namespace skein::engine::simt {

inline constexpr int kLanes = 32;
inline constexpr int kBarriers = 16;

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
  PeerView view;  // where several ranks run
};

struct BarrierState {
  int expected = 0;
  int arrived = 0;
  int votes = 0;
  Site site{};
  std::vector<Thread*> waiting;
  BarrierVotes result;
  PeerClock given;  // what those that arrived have seen and done
};

// A warpgroup's threads that wait for the others of it.
struct WarpgroupCall {
  int arrived = 0;
  Site site{};
  void* in[kWarpgroupThreads] = {};
};

// What a block runs in.
struct BlockSurroundings {
  Counters* counters;
  std::mt19937* random;  // mixes the turns of Order::kShuffled
  Order order;
  PeerMemory* peers = nullptr;  // where several ranks run
  int rank = -1;
};

class BlockRun {
 public:
  // Shared arrays for the blocks of a grid.
  void Prepare(const GridShape& shape) { shared_.Reset(shape.shared_bytes, shape.asks_for_shared); }
  // Puts every thread at the beginning of `body`, which outlives the block.
  void Start(const GridShape& shape, uint3 block, const std::function<void()>* body,
             const BlockSurroundings& around);
  // Gives each thread that can go on one turn. Ends the process if there is none.
  void Turn();
  bool ended() const { return ended_ == static_cast<int>(threads_.size()); }
  // After the end: that nothing is left over.
  void Finish();

  // The rest is called by the thread that runs.
  Thread& current();
  std::string CurrentName() const;
  std::vector<Thread>& threads() { return threads_; }
  SharedMemory& shared() { return shared_; }
  HopperState& hopper() { return hopper_; }
  PeerMemory* peers() { return around_.peers; }

  void Yield();  // the thread's turn ends
  BarrierVotes Join(int id, int threads, bool vote, bool same_site, const Site& site);
  void Arrive(int id, int threads, const Site& site);
  void Warp(WarpCall call, const Site& site);
  int Warpgroup(void* in, GroupCombine combine, const Site& site);
  void Until(const std::function<bool()>& ready, const Site& site);

 private:
  static void Body(void* block);
  void MixTurns();
  bool HasTurn(Thread* thread);
  void Wait(const Site& site);
  void Wake(Thread* thread) { thread->state = State::kReady; }
  BarrierState& Enter(int id, int threads, const Site& site);
  void Release(BarrierState* barrier);
  [[noreturn]] void ReportStuck();

  const std::function<void()>* body_ = nullptr;
  BlockSurroundings around_{};
  std::vector<std::unique_ptr<Fiber>> fibers_;  // kept from block to block
  std::vector<Thread> threads_;
  std::vector<uint32_t> warps_;  // lanes that wait in a warp operation
  std::vector<WarpgroupCall> warpgroups_;
  std::vector<int> turns_;
  BarrierState barriers_[kBarriers];
  SharedMemory shared_;
  HopperState hopper_;
  int ended_ = 0;
};

// The block whose thread runs on this OS thread. REQUIRES: InKernel().
BlockRun& ThisBlock();
bool InKernel();

}  // namespace skein::engine::simt
