// Ranks of the emulator that share peer-mapped memory, for tests of collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/cuda/collectives/collectives.h"
#include "engine/cuda/emulator/ranks.h"

namespace skein::engine {

class TestingWorld {
 public:
  static constexpr int64_t kWaitTurnsMax = 1'000'000;

  TestingWorld(int ranks, const PeerShape& shape, int64_t wait_turns_max = kWaitTurnsMax)
      : memory_(ranks, PeerMemoryBytes(shape, ranks)),
        epochs_(static_cast<size_t>(ranks),
                std::vector<uint32_t>(PeerEpochsBytes(shape) / sizeof(uint32_t))),
        reports_(static_cast<size_t>(ranks)),
        shape_(shape),
        wait_turns_max_(wait_turns_max) {}

  int ranks() const { return static_cast<int>(reports_.size()); }
  simt::PeerMemory& memory() { return memory_; }
  const PeerReport& report(int rank) const { return reports_[static_cast<size_t>(rank)]; }

  PeerGroup Of(int rank) {
    PeerGroup group;
    group.ranks = ranks();
    group.rank = rank;
    group.shape = shape_;
    for (int r = 0; r < ranks(); ++r) group.memory[r] = memory_.Of(r);
    group.epochs = epochs_[static_cast<size_t>(rank)].data();
    group.report = &reports_[static_cast<size_t>(rank)];
    group.wait_ns_max = wait_turns_max_;
    return group;
  }

  // As if so many meetings had been.
  void SetEpochs(uint32_t epoch) {
    for (int r = 0; r < ranks(); ++r) {
      for (uint32_t& own : epochs_[static_cast<size_t>(r)]) own = epoch;
      for (int lane = 0; lane < shape_.lanes; ++lane) {
        for (int p = 0; p < ranks(); ++p) {
          memory_.Poke(memory_.Of(r) + PeerMailboxOffset(lane, p), epoch);
        }
      }
    }
  }

  // What `launch` launches for each rank runs at once, by the seed.
  simt::RankRunCounts Run(uint64_t seed,
                          const std::function<void(int rank, const PeerGroup& group)>& launch) {
    std::vector<simt::GridQueue> queues(reports_.size());
    for (int r = 0; r < ranks(); ++r) {
      const PeerGroup group = Of(r);
      const simt::QueueGrids queue(&queues[static_cast<size_t>(r)]);
      launch(r, group);
    }
    // One block at a time is enough for lanes that start in their order.
    const int blocks = seed % 4 == 0 ? 1 : shape_.lanes;
    return simt::RunRanks(queues, &memory_, {.seed = seed, .blocks_at_once = blocks});
  }

 private:
  simt::PeerMemory memory_;
  std::vector<std::vector<uint32_t>> epochs_;
  std::vector<PeerReport> reports_;
  const PeerShape shape_;
  const int64_t wait_turns_max_;
};

}  // namespace skein::engine
