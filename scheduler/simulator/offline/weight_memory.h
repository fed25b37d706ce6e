// What weights and KV take of the devices' memory when `ranks` instances run a model side by side:
// each with all weights (DP), or with the weights of the feed-forward networks shared, one owner a
// layer (SiDP, section 4). An instance is the profile's base_devices, in TP over them; TP alone is
// one rank of all devices.
#pragma once

#include <cstdint>

#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

double FeedForwardLayerBytes(const StepProfile& profile);  // of one layer
double FeedForwardBytes(const StepProfile& profile);       // of all layers
// Share of the products' weights, which a step reads, that are of the feed-forward networks.
double FeedForwardShare(const StepProfile& profile);

// The paper's two sentences about the cache of fetched weights.
enum class SlotBytes {
  kLayers,  // section 4.2: room for d - 1 remote layers
  kTiles,   // section 4.4: d - 1 slots of at most 1 GB together on a device, so a slot holds tiles
};
inline constexpr double kMostTileBytes = 1024.0 * 1024 * 1024;

struct WeightMemory {
  double weight_bytes = 0;     // of the rank that holds the most, over its devices
  double slot_bytes = 0;       // of a rank, over its devices
  int64_t rank_kv_tokens = 0;  // of the rank with the fewest; 0: the weights do not fit
  int64_t kv_tokens = 0;       // of all ranks together; 0 if one has none
};
WeightMemory FullMemory(const StepProfile& profile, int64_t ranks);
// Layers are dealt in turn, so the first layers % ranks ranks own one more. With one rank this is
// FullMemory. REQUIRES ranks >= 1.
WeightMemory SharedMemory(const StepProfile& profile, int64_t ranks, SlotBytes slots);

}  // namespace skein::scheduler
