#include "engine/model/layers/fill_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace skein::engine {
namespace {

constexpr int kLayers = 24;

// The layers that a rank reads, and of which layer each tile is.
struct Read {
  std::vector<int> tiles_of_layers, layers, layer_of_tile;
};
Read ReadsOf(int rank, int ranks, int tiles) {
  Read read;
  for (int layer = 0; layer < kLayers; ++layer) {
    if (layer % ranks == rank) continue;
    read.layers.push_back(layer);
    read.tiles_of_layers.push_back(tiles);
    read.layer_of_tile.insert(read.layer_of_tile.end(), static_cast<size_t>(tiles), layer);
  }
  return read;
}

TEST(FillOrder, EveryTileOnceAStepAndNoneWaitsForASlotOfALaterOne) {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int tiles : {1, 3}) {
      for (const int slots : {1, 2, 5, 3 * (ranks - 1), 100}) {
        for (int rank = 0; rank < ranks; ++rank) {
          const Read read = ReadsOf(rank, ranks, tiles);
          const FillOrder order(read.tiles_of_layers, read.layers, slots, rank, ranks);
          ASSERT_EQ(order.tiles(), static_cast<int64_t>(read.layer_of_tile.size()));
          std::set<int64_t> filled;
          for (int64_t position = 0; position < 2 * order.tiles(); ++position) {
            const int64_t number = order.At(position);
            EXPECT_TRUE(filled.insert(number).second);
            // A slot is there for it when all tiles before it were used.
            EXPECT_LE(position - number, slots - 1);
            EXPECT_LE(order.PositionBefore(number), position);
            EXPECT_LE(order.PositionBefore(number), number);
          }
          EXPECT_EQ(*filled.rbegin(), 2 * order.tiles() - 1);
        }
      }
    }
  }
}

// How many ranks read from the owner that most of them read from, when all go at one pace.
int MostAtOneOwner(int ranks, bool shifted) {
  constexpr int kTiles = 3;
  std::vector<Read> reads;
  std::vector<FillOrder> orders;
  for (int rank = 0; rank < ranks; ++rank) {
    const Read& read = reads.emplace_back(ReadsOf(rank, ranks, kTiles));
    orders.emplace_back(read.tiles_of_layers, read.layers, kTiles * (ranks - 1), shifted ? rank : 0,
                        ranks);
  }
  int most = 0;
  for (int64_t position = 0; position < orders[0].tiles(); ++position) {
    std::vector<int> readers(static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      const auto tile = static_cast<size_t>(orders[rank].At(position));
      ++readers[static_cast<size_t>(reads[rank].layer_of_tile[tile] % ranks)];
    }
    most = std::max(most, *std::max_element(readers.begin(), readers.end()));
  }
  return most;
}

TEST(FillOrder, ShiftedRanksNeverMeetAtAnOwner) {
  for (const int ranks : {2, 4, 8}) {
    EXPECT_EQ(MostAtOneOwner(ranks, /*shifted=*/true), 1) << ranks;
    EXPECT_EQ(MostAtOneOwner(ranks, /*shifted=*/false), ranks - 1) << ranks;
  }
}

}  // namespace
}  // namespace skein::engine
