// Grids of several ranks at once: what release and acquire order is always seen, and what they do
// not order is not, under some seed.
#include "engine/cuda/emulator/ranks.h"

#include <cstring>
#include <thread>
#include <vector>

#include "engine/cuda/simt/simt_peer.h"
#include "gtest/gtest.h"

namespace skein::engine::simt {
namespace {

constexpr int kSeeds = 200;
constexpr int kThreads = 16;
constexpr int64_t kEver = 60'000'000'000;  // ns of OS threads, turns of RunRanks

// A rank's memory.
struct Box {
  uint32_t flag;
  uint32_t more_flag;
  uint32_t pad[2];
  uint4 data[kThreads];
};

enum class Plant { kNothing, kNoRelease, kNoAcquire, kNoBarrier };

__device__ void Await(const uint32_t* flag, uint32_t value, Plant plant) {
  const int64_t begin = NowNs();
  while (NowNs() - begin < kEver) {
    const uint32_t seen = plant == Plant::kNoAcquire ? PeerLoadRelaxed(flag) : PeerAcquire(flag);
    if (seen == value) return;
  }
}

__global__ void Send(Box* to, uint32_t value, Plant plant) {
  const unsigned own = threadIdx.x;
  PeerStore(&to->data[own], uint4{value, value, value, value});
  if (plant != Plant::kNoBarrier) __syncthreads();
  if (own == 0 && plant == Plant::kNoRelease) PeerStoreRelaxed(&to->flag, value);
  if (own == 0 && plant != Plant::kNoRelease) PeerRelease(&to->flag, value);
}

__global__ void Receive(const Box* box, uint32_t value, uint4* out, Plant plant) {
  if (threadIdx.x == 0) Await(&box->flag, value, plant);
  __syncthreads();
  out[threadIdx.x] = PeerLoad<uint4>(&box->data[threadIdx.x]);
}

// Rank 1 receives from rank 0; the others do nothing.
struct Passed {
  int wrong = 0;
  int64_t open_loads = 0;
};
Passed Pass(Plant plant) {
  PeerMemory memory(2, sizeof(Box));
  auto* box = reinterpret_cast<Box*>(memory.Of(1));
  Passed passed;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<uint4> out(kThreads);
    GridQueue queues[2];
    {
      QueueGrids queue(&queues[0]);
      Launch(Send, 1, kThreads, 0, nullptr, box, seed, plant);
    }
    {
      QueueGrids queue(&queues[1]);
      Launch(Receive, 1, kThreads, 0, nullptr, box, seed, out.data(), plant);
    }
    passed.open_loads += RunRanks(queues, &memory, {.seed = seed}).open_loads;
    for (const uint4& got : out) {
      passed.wrong += got.x == seed && got.y == seed && got.z == seed && got.w == seed ? 0 : 1;
    }
  }
  return passed;
}

TEST(Ranks, WhatIsReleasedAndAcquiredIsSeen) {
  const Passed passed = Pass(Plant::kNothing);
  EXPECT_EQ(passed.wrong, 0);
  EXPECT_EQ(passed.open_loads, 0);
}

TEST(Ranks, WhatIsNotOrderedIsMissedUnderSomeSeed) {
  for (const Plant plant : {Plant::kNoRelease, Plant::kNoAcquire, Plant::kNoBarrier}) {
    const Passed passed = Pass(plant);
    EXPECT_GT(passed.wrong, 0) << static_cast<int>(plant);
    EXPECT_GT(passed.open_loads, 0) << static_cast<int>(plant);
  }
}

// Hands on what the previous rank has told, without touching the data.
__global__ void HandOn(const Box* own, Box* next, uint32_t value) {
  Await(&own->flag, value, Plant::kNothing);
  PeerRelease(&next->flag, value);
}

TEST(Ranks, OrderPassesThroughAThirdRank) {
  PeerMemory memory(3, sizeof(Box));
  Box* box[3];
  for (int r = 0; r < 3; ++r) box[r] = reinterpret_cast<Box*>(memory.Of(r));
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    // Rank 0 stores at rank 2, tells rank 1, which tells rank 2.
    std::vector<uint4> out(kThreads);
    GridQueue queues[3];
    const auto store_and_tell = [&](Box* data, Box* flag) {
      for (int t = 0; t < kThreads; ++t) {
        if (threadIdx.x == static_cast<unsigned>(t))
          PeerStore(&data->data[t], uint4{seed, 0, 0, 0});
      }
      __syncthreads();
      if (threadIdx.x == 0) PeerRelease(&flag->flag, seed);
    };
    queues[0].push_back({{1, kThreads}, [&] { store_and_tell(box[2], box[1]); }});
    queues[1].push_back({{1, 1}, [&] { HandOn(box[1], box[2], seed); }});
    queues[2].push_back(
        {{1, kThreads}, [&] { Receive(box[2], seed, out.data(), Plant::kNothing); }});
    EXPECT_EQ(RunRanks(queues, &memory, {.seed = seed}).open_loads, 0);
    for (const uint4& got : out) ASSERT_EQ(got.x, seed);
  }
}

// Block b of a grid stores, block b of the next grid reads what all blocks stored.
__global__ void StoreOwn(uint32_t* words, uint32_t value) {
  PeerStore(&words[blockIdx.x], value + blockIdx.x);
}
__global__ void SumAll(const uint32_t* words, uint32_t* sums) {
  uint32_t sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += PeerLoad<uint32_t>(&words[b]);
  sums[blockIdx.x] = sum;
}

TEST(Ranks, AGridSeesWhatTheGridBeforeItDid) {
  PeerMemory memory(2, 4 * sizeof(uint32_t));
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    uint32_t sums[2][4] = {};
    GridQueue queues[2];
    for (int r = 0; r < 2; ++r) {
      QueueGrids queue(&queues[r]);
      auto* words = reinterpret_cast<uint32_t*>(memory.Of(r));
      Launch(StoreOwn, 4, 1, 0, nullptr, words, seed);
      Launch(SumAll, 4, 1, 0, nullptr, words, sums[r]);
    }
    EXPECT_EQ(RunRanks(queues, &memory, {seed, static_cast<int>(1 + seed % 3)}).open_loads, 0);
    for (const auto& of_rank : sums) {
      for (const uint32_t sum : of_rank) ASSERT_EQ(sum, 4 * seed + 6);
    }
  }
}

// Stores twice without waiting until the first was read.
__global__ void SendTwice(Box* to) {
  PeerStore(&to->data[0].x, 1u);
  PeerRelease(&to->flag, 1);
  PeerStore(&to->data[0].x, 2u);
}
__global__ void ReceiveFirst(const Box* box, uint32_t* out) {
  Await(&box->flag, 1, Plant::kNothing);
  *out = PeerLoad<uint32_t>(&box->data[0].x);
}

TEST(Ranks, ALaterStoreMayBeSeenEarly) {
  bool seen[3] = {};
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    PeerMemory memory(2, sizeof(Box));
    auto* box = reinterpret_cast<Box*>(memory.Of(1));
    uint32_t out = 0;
    GridQueue queues[2];
    queues[0].push_back({{}, [&] { SendTwice(box); }});
    queues[1].push_back({{}, [&] { ReceiveFirst(box, &out); }});
    RunRanks(queues, &memory, {.seed = seed});
    ASSERT_LE(out, 2u);
    seen[out] = true;
  }
  EXPECT_FALSE(seen[0]);
  EXPECT_TRUE(seen[1]);
  EXPECT_TRUE(seen[2]);
}

TEST(Ranks, ASeedIsARun) {
  PeerMemory memory(2, sizeof(Box));
  std::vector<int64_t> turns;
  for (const uint64_t seed : {7u, 7u, 8u}) {
    auto* box = reinterpret_cast<Box*>(memory.Of(1));
    std::vector<uint4> out(kThreads);
    memory.Poke(&box->flag, 0);
    EXPECT_EQ(memory.Peek(&box->flag), 0u);
    GridQueue queues[2];
    queues[0].push_back({{1, kThreads}, [&] { Send(box, 5, Plant::kNothing); }});
    queues[1].push_back({{1, kThreads}, [&] { Receive(box, 5, out.data(), Plant::kNothing); }});
    turns.push_back(RunRanks(queues, &memory, {.seed = seed}).turns);
  }
  EXPECT_EQ(turns[0], turns[1]);
  EXPECT_NE(turns[0], turns[2]);
}

// Without RunRanks: the memory is anybody's, and each rank an OS thread.
TEST(Ranks, RunAsOsThreadsToo) {
  Box box{};
  for (uint32_t value = 1; value <= 50; ++value) {
    std::vector<uint4> out(kThreads);
    std::thread sender(
        [&] { Launch(Send, 1, kThreads, 0, nullptr, &box, value, Plant::kNothing); });
    Launch(Receive, 1, kThreads, 0, nullptr, &box, value, out.data(), Plant::kNothing);
    sender.join();
    for (const uint4& got : out) ASSERT_EQ(got.w, value);
  }
}

__global__ void TouchPlainly(Box* box) { box->data[0].x = 1; }
__global__ void StoreBehind(Box* box) { PeerStore(&box[1].flag, 1u); }
__global__ void LoadCrooked(const Box* box) { (void)PeerLoad<uint2>(&box->more_flag); }

void RunOne(void (*kernel)(Box*)) {
  PeerMemory memory(1, sizeof(Box));
  GridQueue queue;
  queue.push_back({{}, [&] { kernel(reinterpret_cast<Box*>(memory.Of(0))); }});
  RunRanks({&queue, 1}, &memory, {});
}

TEST(RanksDeathTest, MemoryOfPeersTakesItsOwnAccessesOnly) {
  EXPECT_DEATH(RunOne(TouchPlainly), "");
  EXPECT_DEATH(RunOne(StoreBehind), "outside the memory that ranks share");
  EXPECT_DEATH(RunOne([](Box* box) { LoadCrooked(box); }),
               "rank 0, thread \\(0, 0, 0\\) of block \\(0, 0, 0\\): the address is not aligned");
  EXPECT_DEATH(RunOne([](Box*) { BarrierSync(1, 64); }), "a multiple of 32");
}

}  // namespace
}  // namespace skein::engine::simt
