// The collectives' kernels on the emulator, ranks interleaved by seeds: results bit by bit, at
// sizes around every boundary; what breaks a group; and that mistakes in how ranks meet are caught.
//
// SKEIN_COLLECTIVES_SEEDS: seeds for each number of ranks and size (the number is 10000);
// a few without it.
#include "engine/cuda/collectives/collectives.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/f16.h"
#include "engine/comm/algorithms/reduce.h"
#include "engine/cuda/collectives/collective_launches.h"
#include "engine/cuda/collectives/testing/world.h"
#include "engine/cuda/emulator/recording.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using Bytes = std::vector<std::byte>;

// Small, so that few elements reach every boundary.
constexpr PeerShape kShape = {.lanes = 2, .slot_bytes = 64, .segment_bytes_min = 32, .threads = 8};
constexpr ReduceWay kWays[] = {ReduceWay::kOneShot, ReduceWay::kTwoShot};
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

int Seeds(int few) {
  const char* seeds = std::getenv("SKEIN_COLLECTIVES_SEEDS");
  return seeds == nullptr ? few : std::atoi(seeds);
}

// Elements around where a vector, a segment, a lane or a round of slots ends, for each of `slices`.
std::vector<int64_t> SizesFor(int slices, DType dtype) {
  std::vector<int64_t> sizes = {0, 1};
  for (const int64_t bytes : {16, 32, 64, 128, 256}) {
    const int64_t elements = bytes * slices / static_cast<int64_t>(BytesOf(dtype));
    sizes.insert(sizes.end(), {elements - 1, elements, elements + 1});
  }
  return sizes;
}

Bytes RandomValues(int64_t count, DType dtype, std::mt19937* random) {
  Bytes bytes(static_cast<size_t>(count) * BytesOf(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int32_t>((*random)())) * 0x1p-31f;
    if (dtype == DType::kF32) std::memcpy(&bytes[static_cast<size_t>(i) * 4], &value, 4);
    if (dtype == DType::kBF16) {
      const BF16 narrow = ToBF16(value);
      std::memcpy(&bytes[static_cast<size_t>(i) * 2], &narrow, 2);
    }
    if (dtype == DType::kF16) {
      const auto narrow = static_cast<F16>(value);
      std::memcpy(&bytes[static_cast<size_t>(i) * 2], &narrow, 2);
    }
  }
  return bytes;
}

Bytes RandomBytes(int64_t count, std::mt19937* random) {
  Bytes bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>((*random)());
  return bytes;
}

Bytes SumOf(const std::vector<Bytes>& all, DType dtype) {
  std::vector<const void*> sources;
  for (const Bytes& one : all) sources.push_back(one.data());
  Bytes sum(all.front().size());
  SumInOrder(sources, sum.data(), static_cast<int64_t>(sum.size() / BytesOf(dtype)), dtype);
  return sum;
}

// Two all-reduces of the same buffers, back to back. How many ranks ended with other bits than the
// in-process communicator's.
template <class Rules>
int WrongAfterTwo(TestingWorld* world, uint64_t seed, int64_t count, DType dtype, ReduceWay way,
                  int64_t* open_loads) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<Bytes> data;
  for (int r = 0; r < world->ranks(); ++r) data.push_back(RandomValues(count, dtype, &random));
  const Bytes once = SumOf(data, dtype);
  const Bytes twice = SumOf(std::vector<Bytes>(data.size(), once), dtype);
  *open_loads +=
      world
          ->Run(seed,
                [&](int rank, const PeerGroup& group) {
                  for (int call = 0; call < 2; ++call) {
                    LaunchAllReduce<Rules>(group, data[rank].data(), count, dtype, way, nullptr);
                  }
                })
          .open_loads;
  return static_cast<int>(
      std::count_if(data.begin(), data.end(), [&](const Bytes& own) { return own != twice; }));
}

class OfRanks : public testing::TestWithParam<int> {};

TEST_P(OfRanks, AllReduceGivesAllRanksTheBitsOfTheInProcessOne) {
  for (const ReduceWay way : kWays) {
    for (const DType dtype : kDTypes) {
      TestingWorld world(GetParam(), kShape);
      int64_t open_loads = 0;
      const int slices = way == ReduceWay::kOneShot ? 1 : GetParam();
      for (const int64_t count : SizesFor(slices, dtype)) {
        // Each of the three dtypes takes its share of the seeds.
        for (int seed = static_cast<int>(dtype); seed < Seeds(18); seed += 3) {
          ASSERT_EQ(WrongAfterTwo<PeerRules>(&world, static_cast<uint64_t>(seed), count, dtype, way,
                                             &open_loads),
                    0)
              << count << " of " << NameOf(dtype) << ", seed " << seed;
        }
      }
      EXPECT_EQ(open_loads, 0);
      EXPECT_EQ(world.report(0).fault, 0u);
    }
  }
}

TEST_P(OfRanks, AllGatherPutsEveryRanksBytesInOrder) {
  TestingWorld world(GetParam(), kShape);
  for (const int64_t bytes : SizesFor(1, DType::kBF16)) {
    for (int seed = 0; seed < Seeds(12); ++seed) {
      std::mt19937 random(static_cast<uint32_t>(seed));
      std::vector<Bytes> send;
      Bytes all[2];
      for (int call = 0; call < 2; ++call) {
        for (int r = 0; r < world.ranks(); ++r) {
          send.push_back(RandomBytes(bytes, &random));
          all[call].insert(all[call].end(), send.back().begin(), send.back().end());
        }
      }
      // The second call's own bytes are already in their place.
      std::vector<Bytes> receive(send.size(), Bytes(all[0].size()));
      const auto counts = world.Run(static_cast<uint64_t>(seed), [&](int rank, const PeerGroup& g) {
        PeerAllGather(g, send[rank].data(), bytes, receive[rank].data(), nullptr);
        std::byte* second = receive[world.ranks() + rank].data();
        std::copy_n(send[world.ranks() + rank].data(), bytes, second + rank * bytes);
        PeerAllGather(g, second + rank * bytes, bytes, second, nullptr);
      });
      EXPECT_EQ(counts.open_loads, 0);
      for (int r = 0; r < world.ranks(); ++r) {
        ASSERT_EQ(receive[r], all[0]) << bytes << ", seed " << seed;
        ASSERT_EQ(receive[world.ranks() + r], all[1]) << bytes << ", seed " << seed;
      }
    }
  }
}

// What rank `from` sends to rank `to`: none, few, or several rounds.
int64_t PartBytes(int from, int to, uint32_t salt) {
  constexpr int64_t kSizes[] = {0, 3, 16, 31, 32, 33, 100, 128, 129, 300};
  return kSizes[(static_cast<uint32_t>(from * 7 + to) * 2654435761u + salt) % 10];
}

// Buffers of one all-to-all of all ranks, and what is to come of it.
struct Parts {
  std::vector<std::vector<Bytes>> send, receive, expected;  // [rank][peer]

  Parts(int ranks, uint32_t salt, std::mt19937* random)
      : send(ranks), receive(ranks), expected(ranks) {
    for (int r = 0; r < ranks; ++r) {
      for (int p = 0; p < ranks; ++p) {
        send[r].push_back(RandomBytes(PartBytes(r, p, salt), random));
        receive[r].emplace_back(PartBytes(p, r, salt));
      }
    }
    for (int r = 0; r < ranks; ++r) {
      for (int p = 0; p < ranks; ++p) expected[r].push_back(send[p][r]);
    }
  }
  void Launch(int rank, const PeerGroup& group) {
    std::vector<std::span<const std::byte>> out(send[rank].begin(), send[rank].end());
    std::vector<std::span<std::byte>> in(receive[rank].begin(), receive[rank].end());
    PeerAllToAll(group, out, in, nullptr);
  }
};

TEST_P(OfRanks, AllToAllBringsPartsOfAnySizes) {
  TestingWorld world(GetParam(), kShape);
  for (int seed = 0; seed < Seeds(360); ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    Parts first(world.ranks(), random(), &random), second(world.ranks(), random(), &random);
    const auto counts = world.Run(static_cast<uint64_t>(seed), [&](int rank, const PeerGroup& g) {
      first.Launch(rank, g);
      second.Launch(rank, g);
    });
    EXPECT_EQ(counts.open_loads, 0);
    ASSERT_EQ(first.receive, first.expected) << seed;
    ASSERT_EQ(second.receive, second.expected) << seed;
  }
}

// Calls of all kinds one behind the other: pairs have met different numbers of times then.
TEST_P(OfRanks, CallsOfAllKindsMix) {
  TestingWorld world(GetParam(), kShape);
  world.SetEpochs(0xfffffff0u);  // they wrap
  for (int seed = 0; seed < Seeds(240); ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const auto sizes = SizesFor(world.ranks(), DType::kBF16);
    const int64_t count = sizes[random() % sizes.size()];
    std::vector<Bytes> data, gathered;
    for (int r = 0; r < world.ranks(); ++r) {
      data.push_back(RandomValues(count, DType::kBF16, &random));
      gathered.emplace_back(data.back().size() * static_cast<size_t>(world.ranks()));
    }
    const Bytes sum = SumOf(data, DType::kBF16);
    Parts parts(world.ranks(), random(), &random);
    const ReduceWay way = kWays[random() % 2];
    world.Run(static_cast<uint64_t>(seed), [&](int rank, const PeerGroup& g) {
      parts.Launch(rank, g);
      LaunchAllReduce<PeerRules>(g, data[rank].data(), count, DType::kBF16, way, nullptr);
      PeerAllGather(g, data[rank].data(), static_cast<int64_t>(data[rank].size()),
                    gathered[rank].data(), nullptr);
    });
    ASSERT_EQ(parts.receive, parts.expected) << seed;
    for (int r = 0; r < world.ranks(); ++r) {
      ASSERT_EQ(data[r], sum) << seed;
      for (int p = 0; p < world.ranks(); ++p) {
        ASSERT_TRUE(std::equal(sum.begin(), sum.end(),
                               gathered[r].begin() + p * static_cast<int64_t>(sum.size())))
            << seed;
      }
    }
  }
}

// A rank that does not come: all others say so, in bounded time, and go on to nothing.
TEST_P(OfRanks, AnAbsentRankIsReported) {
  for (int seed = 0; seed < Seeds(120); ++seed) {
    for (const ReduceWay way : kWays) {
      TestingWorld world(GetParam(), kShape, 3000);
      const int absent = seed % world.ranks();
      std::vector<Bytes> data(static_cast<size_t>(world.ranks()), Bytes(1024));
      const auto call = [&](int rank, const PeerGroup& g) {
        if (rank == absent) return;
        LaunchAllReduce<PeerRules>(g, data[rank].data(), 256, DType::kF32, way, nullptr);
        LaunchAllReduce<PeerRules>(g, data[rank].data(), 256, DType::kF32, way, nullptr);
      };
      world.Run(static_cast<uint64_t>(seed), call);
      bool late = false;
      for (int r = 0; r < world.ranks(); ++r) {
        const auto fault = static_cast<PeerFault>(world.report(r).fault);
        if (r == absent) continue;
        ASSERT_TRUE(fault == PeerFault::kLate || fault == PeerFault::kTold) << r;
        if (fault == PeerFault::kLate) {
          EXPECT_EQ(world.report(r).peer, absent);
          late = true;
        }
      }
      EXPECT_TRUE(late);
      // Later calls wait for nobody, and the late rank is told.
      const auto again = world.Run(static_cast<uint64_t>(seed), call);
      EXPECT_LT(again.turns, 500);
      world.Run(static_cast<uint64_t>(seed), [&](int rank, const PeerGroup& g) {
        if (rank != absent) return;
        LaunchAllReduce<PeerRules>(g, data[rank].data(), 256, DType::kF32, way, nullptr);
        LaunchAllReduce<PeerRules>(g, data[rank].data(), 256, DType::kF32, way, nullptr);
      });
      EXPECT_NE(world.report(absent).fault, 0u);
    }
  }
}

TEST_P(OfRanks, AnotherCallIsReported) {
  for (int seed = 0; seed < Seeds(120); ++seed) {
    TestingWorld world(GetParam(), kShape);
    std::vector<Bytes> data(static_cast<size_t>(world.ranks()), Bytes(64));
    world.Run(static_cast<uint64_t>(seed), [&](int rank, const PeerGroup& g) {
      const DType dtype = rank == 1 ? DType::kBF16 : DType::kF16;
      LaunchAllReduce<PeerRules>(g, data[rank].data(), 8, dtype, ReduceWay::kOneShot, nullptr);
    });
    // Of more than two ranks one may be told before it finds out.
    int found_out = 0;
    for (int r = 0; r < world.ranks(); ++r) {
      if (world.report(r).fault == static_cast<uint32_t>(PeerFault::kDiffers)) ++found_out;
    }
    EXPECT_GE(found_out, world.ranks() == 2 ? 2 : 1) << seed;
    EXPECT_NE(world.report(1).fault, 0u) << seed;
  }
}

TEST_P(OfRanks, TheHostBreaksAGroup) {
  TestingWorld world(GetParam(), kShape);
  for (int r = 0; r < world.ranks(); ++r) world.memory().Poke(world.memory().Of(r), 1);
  std::vector<Bytes> data(static_cast<size_t>(world.ranks()), Bytes(64));
  const auto counts = world.Run(1, [&](int rank, const PeerGroup& g) {
    if (rank == 0) return;
    PeerAllReduce(g, data[rank].data(), 16, DType::kF32, nullptr);
  });
  EXPECT_LT(counts.turns, 2000 * world.ranks());
  for (int r = 1; r < world.ranks(); ++r) {
    EXPECT_EQ(world.report(r).fault, static_cast<uint32_t>(PeerFault::kTold));
  }
}

// The calls of a step, recorded once and launched again and again on other values.
TEST_P(OfRanks, AGraphIsReplayed) {
  TestingWorld world(GetParam(), kShape);
  constexpr int64_t kCount = 150;
  std::vector<Bytes> data(static_cast<size_t>(world.ranks()), Bytes(kCount * 4));
  std::vector<Bytes> all(data.size(), Bytes(data.size() * kCount * 4));
  const auto step = [&](int rank, const PeerGroup& g, CudaStream stream) {
    for (const ReduceWay way : kWays) {
      LaunchAllReduce<PeerRules>(g, data[rank].data(), kCount, DType::kF32, way, stream);
    }
    PeerAllGather(g, data[rank].data(), kCount * 4, all[rank].data(), stream);
  };
  world.Run(1, [&](int rank, const PeerGroup& g) { step(rank, g, nullptr); });  // loads them
  std::vector<simt::Launches> graphs(data.size());
  for (int r = 0; r < world.ranks(); ++r) {
    CudaStream stream = simt::BeginRecording(&graphs[static_cast<size_t>(r)]);
    step(r, world.Of(r), stream);
    simt::EndRecording();
  }
  for (int seed = 0; seed < Seeds(180); ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    for (Bytes& own : data) {  // in place: the graphs hold where they are
      const Bytes values = RandomValues(kCount, DType::kF32, &random);
      std::copy(values.begin(), values.end(), own.begin());
    }
    const Bytes once = SumOf(data, DType::kF32);
    const Bytes twice = SumOf(std::vector<Bytes>(data.size(), once), DType::kF32);
    const Bytes third = SumOf(std::vector<Bytes>(data.size(), twice), DType::kF32);
    const Bytes fourth = SumOf(std::vector<Bytes>(data.size(), third), DType::kF32);
    const auto counts = world.Run(static_cast<uint64_t>(seed), [&](int rank, const PeerGroup&) {
      for (int replay = 0; replay < 2; ++replay) {
        for (const auto& launch : graphs[static_cast<size_t>(rank)]) launch();
      }
    });
    EXPECT_EQ(counts.open_loads, 0);
    for (int r = 0; r < world.ranks(); ++r) {
      ASSERT_EQ(data[r], fourth) << seed;
      ASSERT_TRUE(std::equal(fourth.begin(), fourth.end(), all[r].end() - kCount * 4)) << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, OfRanks, testing::Values(2, 3, 4, 8));

// Mistakes.

struct WithoutRelease : PeerRules {
  static void Publish(uint32_t* flag, uint32_t value) { simt::PeerStoreRelaxed(flag, value); }
};
struct WithoutAcquire : PeerRules {
  static uint32_t Look(const uint32_t* flag) { return simt::PeerLoadRelaxed(flag); }
};
// A flag is up or down, and nobody takes it down.
struct FlagNotReset : PeerRules {
  static uint32_t FlagOf(uint32_t) { return 1; }
  static bool Reached(uint32_t flag, uint32_t awaited) { return flag == awaited; }
};
// The next call's bytes go where this call's may still be read.
struct ReusedOneCallEarly : PeerRules {
  static uint32_t SetOf(uint32_t) { return 0; }
};

// Seeds under which a rank ended with wrong bits, of 40 for each number of ranks and way.
template <class Rules>
int CaughtBy(int ranks, ReduceWay way) {
  int caught = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    TestingWorld world(ranks, kShape, 20'000);
    int64_t open_loads = 0;
    caught += WrongAfterTwo<Rules>(&world, seed, 100, DType::kF32, way, &open_loads) > 0 ? 1 : 0;
  }
  return caught;
}

template <class Rules>
class Mistakes : public testing::Test {};
using AllMistakes =
    testing::Types<WithoutRelease, WithoutAcquire, FlagNotReset, ReusedOneCallEarly>;
TYPED_TEST_SUITE(Mistakes, AllMistakes);

TYPED_TEST(Mistakes, AreCaught) {
  for (const int ranks : {2, 4, 8}) {
    for (const ReduceWay way : kWays) {
      const int caught = CaughtBy<TypeParam>(ranks, way);
      EXPECT_GT(caught, 0) << ranks << (way == ReduceWay::kOneShot ? " one-shot" : " two-shot");
      testing::Test::RecordProperty("caught_" + std::to_string(ranks) +
                                        (way == ReduceWay::kOneShot ? "_one_shot" : "_two_shot"),
                                    caught);
    }
  }
}

TEST(PeerSegments, CoverEveryByteOnceWithinASlot) {
  for (int64_t bytes = 0; bytes < 2000; ++bytes) {
    const int64_t each = PeerSegmentBytes(kShape, bytes), segments = PeerSegments(kShape, bytes);
    EXPECT_LE(each, kShape.slot_bytes);
    EXPECT_EQ(each % 16, 0);
    EXPECT_GE(segments * each, bytes);
    EXPECT_TRUE(segments == 1 || (segments - 1) * each < bytes);
  }
}

}  // namespace
}  // namespace skein::engine
