#include "scheduler/simulator/offline/weight_memory.h"

#include <algorithm>

namespace skein::scheduler {
namespace {

double Double(int64_t value) { return static_cast<double>(value); }

double FeedForwardLayerWeights(const StepProfile& profile) {
  return 3 * Double(profile.shape.hidden) * Double(profile.shape.intermediate);
}

int64_t KvTokensBeside(const StepProfile& profile, double bytes) {
  const double rest = profile.peaks.usable_bytes * Double(profile.base_devices) - bytes;
  return static_cast<int64_t>(std::max(0.0, rest / profile.KvBytesPerToken()));
}

}  // namespace

double FeedForwardLayerBytes(const StepProfile& profile) {
  return FeedForwardLayerWeights(profile) * profile.shape.bytes_per_weight;
}

double FeedForwardBytes(const StepProfile& profile) {
  return FeedForwardLayerBytes(profile) * Double(profile.shape.layers);
}

double FeedForwardShare(const StepProfile& profile) {
  return FeedForwardLayerWeights(profile) * Double(profile.shape.layers) / profile.WeightCount();
}

WeightMemory FullMemory(const StepProfile& profile, int64_t ranks) {
  WeightMemory memory;
  memory.weight_bytes = profile.WeightBytes();
  memory.rank_kv_tokens = KvTokensBeside(profile, memory.weight_bytes);
  memory.kv_tokens = memory.rank_kv_tokens * ranks;
  return memory;
}

WeightMemory SharedMemory(const StepProfile& profile, int64_t ranks, SlotBytes slots) {
  if (ranks == 1) return FullMemory(profile, 1);
  const double layer = FeedForwardLayerBytes(profile);
  const double elsewhere = profile.WeightBytes() - FeedForwardBytes(profile);
  WeightMemory memory;
  memory.slot_bytes = Double(ranks - 1) * layer;
  if (slots == SlotBytes::kTiles) {
    memory.slot_bytes = std::min(memory.slot_bytes, kMostTileBytes * Double(profile.base_devices));
  }
  const int64_t layers = profile.shape.layers;
  const auto weights = [&](int64_t owned) { return elsewhere + Double(owned) * layer; };
  const int64_t fuller = layers % ranks;  // ranks that own one layer more
  const int64_t fewest = layers / ranks;
  const int64_t most = fewest + (fuller > 0 ? 1 : 0);
  memory.weight_bytes = weights(most);
  memory.rank_kv_tokens = KvTokensBeside(profile, weights(most) + memory.slot_bytes);
  if (memory.rank_kv_tokens == 0) return memory;
  memory.kv_tokens =
      fuller * memory.rank_kv_tokens +
      (ranks - fuller) * KvTokensBeside(profile, weights(fewest) + memory.slot_bytes);
  return memory;
}

}  // namespace skein::scheduler
