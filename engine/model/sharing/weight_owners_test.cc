#include "engine/model/sharing/weight_owners.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/model/load/feed_forward_tiles.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

// bf16, without biases.
std::vector<FeedForwardWeights> Model(int layers, int64_t hidden, int64_t inner) {
  static const float kNotRead = 0;
  FeedForwardWeights w;
  w.gate.weight = w.up.weight = {&kNotRead, DType::kBF16, inner, hidden, hidden};
  w.down.weight = {&kNotRead, DType::kBF16, hidden, inner, inner};
  return std::vector(static_cast<size_t>(layers), w);
}

TEST(WeightOwners, EachLayerHasOneAndRanksHaveAlikeMany) {
  const WeightOwners owners{4};
  std::vector<int> owned(4);
  for (int layer = 0; layer < 80; ++layer) ++owned[static_cast<size_t>(owners.OwnerOf(layer))];
  EXPECT_EQ(owned, std::vector(4, 20));
  EXPECT_EQ(owners.OwnerOf(5), 1);
}

// Every byte is owned once, and a rank reads in an iteration what it does not own.
TEST(WeightOwners, BytesAddUp) {
  for (const int ranks : {2, 3, 4, 8}) {
    const auto layers = Model(10, 64, 192);
    const SharingBytes bytes = CountSharing(layers, ranks, DefaultSlots(layers, ranks));
    EXPECT_EQ(bytes.whole, int64_t{10} * 3 * 64 * 192 * 2);
    EXPECT_EQ(std::accumulate(bytes.owned.begin(), bytes.owned.end(), int64_t{0}), bytes.whole);
    for (size_t rank = 0; rank < bytes.read.size(); ++rank) {
      EXPECT_EQ(bytes.read[rank][rank], 0);
      EXPECT_EQ(std::accumulate(bytes.read[rank].begin(), bytes.read[rank].end(), int64_t{0}),
                bytes.whole - bytes.owned[rank]);
    }
  }
}

// Of small layers both readings are the same, and the slots hold a cycle but for the rank's own
// layer.
TEST(WeightOwners, SlotsHoldTheOthersLayersOfACycle) {
  const auto layers = Model(8, 64, 192);
  const int64_t of_layer = 3 * 64 * 192 * 2;
  for (const int ranks : {2, 4, 8}) {
    const SlotPlan plan = DefaultSlots(layers, ranks);
    EXPECT_EQ(TilesOf(layers[0], plan.tile_bytes).size(), 3u);
    EXPECT_EQ(plan.slots, 3 * (ranks - 1));
    const SharingBytes bytes = CountSharing(layers, ranks, plan);
    EXPECT_EQ(bytes.slots, (ranks - 1) * of_layer);
    EXPECT_EQ(bytes.slots_of_layers, bytes.slots);
    EXPECT_EQ(bytes.slots_bounded, bytes.slots);
    EXPECT_EQ(bytes.Freed(0), bytes.whole - bytes.owned[0] - bytes.slots);
  }
}

// Llama-3.1-70B: a layer is 1.3 GiB, more than the slots may take.
TEST(WeightOwners, SlotsOfLargeLayersAreBounded) {
  const auto layers = Model(80, 8192, 28672);
  for (const int ranks : {2, 4, 8}) {
    const SharingBytes bytes = CountSharing(layers, ranks, DefaultSlots(layers, ranks));
    EXPECT_EQ(bytes.slots_of_layers, (ranks - 1) * int64_t{3} * 8192 * 28672 * 2);
    EXPECT_EQ(bytes.slots_bounded, kSlotBytesMax);
    EXPECT_LE(bytes.slots, kSlotBytesMax);
    EXPECT_GT(bytes.slots, kSlotBytesMax * 3 / 4);
  }
  const SharingBytes four = CountSharing(layers, 4, DefaultSlots(layers, 4));
  EXPECT_THAT(Describe(four), HasSubstr("section 4.2: 4032.0 MiB; section 4.4: 1024.0 MiB"));
}

TEST(WeightOwners, TilesAreNoLargerThanAskedFor) {
  const auto layers = Model(1, 100, 77);
  for (const int64_t most : {400, 1000, 5000, 100'000}) {
    int64_t bytes = 0;
    for (const FeedForwardTile& tile : TilesOf(layers[0], most)) {
      EXPECT_LE(tile.packed.bytes(), most);
      for (const auto& range : tile.ranges) bytes += range.bytes;
    }
    EXPECT_EQ(bytes, 3 * 100 * 77 * 2);
  }
}

}  // namespace
}  // namespace skein::engine
