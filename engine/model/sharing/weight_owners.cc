#include "engine/model/sharing/weight_owners.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/model/load/feed_forward_tiles.h"
#include "engine/model/load/packed_feed_forward.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kTilesOfLayer = 3;

int64_t LargestTile(const std::vector<FeedForwardWeights>& layers, int64_t tile_bytes) {
  int64_t bytes = 0;
  for (const FeedForwardWeights& layer : layers) {
    for (const FeedForwardTile& tile : TilesOf(layer, tile_bytes)) {
      bytes = std::max(bytes, tile.packed.bytes());
    }
  }
  return bytes;
}

int64_t LargestLayer(const std::vector<FeedForwardWeights>& layers) {
  int64_t bytes = 0;
  for (const FeedForwardWeights& layer : layers) {
    bytes = std::max(bytes, PackedFeedForward(layer).bytes());
  }
  return bytes;
}

double Mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

SlotPlan DefaultSlots(const std::vector<FeedForwardWeights>& layers, int ranks, int64_t bytes_max) {
  SKEIN_CHECK(ranks >= 2 && !layers.empty() && bytes_max > 0);
  const int slots = kTilesOfLayer * (ranks - 1);
  // A half of an odd number of rows is a row more.
  int64_t row = 0;
  for (const FeedForwardWeights& layer : layers) {
    const ConstMatrix &gate = layer.gate.weight, &down = layer.down.weight;
    row = std::max({row, 2 * (gate.cols + 1) * static_cast<int64_t>(BytesOf(gate.dtype)),
                    (down.cols + 1) * static_cast<int64_t>(BytesOf(down.dtype))});
  }
  const int64_t third = (LargestLayer(layers) + kTilesOfLayer - 1) / kTilesOfLayer + row;
  return {slots, std::max<int64_t>(1, std::min(third, bytes_max / slots))};
}

SharingBytes CountSharing(const std::vector<FeedForwardWeights>& layers, int ranks,
                          const SlotPlan& plan) {
  const WeightOwners owners{ranks};
  SharingBytes bytes;
  const auto count = static_cast<size_t>(ranks);
  bytes.owned.resize(count);
  bytes.read.assign(count, std::vector<int64_t>(count));
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto owner = static_cast<size_t>(owners.OwnerOf(static_cast<int>(i)));
    const int64_t of_layer = PackedFeedForward(layers[i]).bytes();
    bytes.whole += of_layer;
    bytes.owned[owner] += of_layer;
    for (size_t rank = 0; rank < count; ++rank) {
      if (rank != owner) bytes.read[rank][owner] += of_layer;
    }
  }
  bytes.slots = plan.slots * LargestTile(layers, plan.tile_bytes);
  bytes.slots_of_layers = (ranks - 1) * LargestLayer(layers);
  bytes.slots_bounded = std::min(bytes.slots_of_layers, kSlotBytesMax);
  return bytes;
}

std::string Describe(const SharingBytes& bytes) {
  std::string text = absl::StrFormat(
      "feed-forward weights: %.1f MiB; slots: %.1f MiB (the paper's section 4.2: %.1f MiB; "
      "section 4.4: %.1f MiB)\n",
      Mib(bytes.whole), Mib(bytes.slots), Mib(bytes.slots_of_layers), Mib(bytes.slots_bounded));
  for (size_t rank = 0; rank < bytes.owned.size(); ++rank) {
    absl::StrAppendFormat(&text, "rank %d: owns %.1f MiB, frees %.1f MiB\n", static_cast<int>(rank),
                          Mib(bytes.owned[rank]), Mib(bytes.Freed(static_cast<int>(rank))));
  }
  return text;
}

}  // namespace skein::engine
