#include "scheduler/simulator/offline/weight_memory.h"

#include <gtest/gtest.h>
#include "scheduler/simulator/offline/offline_profile.h"

namespace skein::scheduler {
namespace {

// Two layers: attention has 4 x (2 x 4 + 2 x 2) = 48 weights a layer (2 heads of 2, 1 KV head),
// the feed-forward network 3 x 4 x 10 = 120; embedding and head have 4 x 5 = 20 each. With two
// bytes a weight: 752 bytes of all, of which 480 are of feed-forward networks. A token of KV has 2
// x 1 x 2 values a layer: 16 bytes.
StepProfile Small(double usable_bytes, int64_t base_devices = 1) {
  StepProfile profile;
  profile.base_devices = base_devices;
  profile.shape = {.layers = 2,
                   .hidden = 4,
                   .heads = 2,
                   .kv_heads = 1,
                   .head_dim = 2,
                   .intermediate = 10,
                   .vocabulary = 5};
  profile.peaks.usable_bytes = usable_bytes;
  return profile;
}

TEST(WeightMemory, FullWeightsByHand) {
  const WeightMemory memory = FullMemory(Small(1000), 2);
  EXPECT_EQ(memory.weight_bytes, 752);
  EXPECT_EQ(memory.slot_bytes, 0);
  EXPECT_EQ(memory.rank_kv_tokens, 15);  // (1000 - 752) / 16 = 15.5
  EXPECT_EQ(memory.kv_tokens, 30);
}

TEST(WeightMemory, SharedWeightsByHand) {
  EXPECT_EQ(FeedForwardLayerBytes(Small(1000)), 240);
  EXPECT_EQ(FeedForwardBytes(Small(1000)), 480);
  EXPECT_DOUBLE_EQ(FeedForwardShare(Small(1000)), 240.0 / 356);
  // Each of two ranks owns one layer, and has a slot for the other.
  const WeightMemory memory = SharedMemory(Small(1000), 2, SlotBytes::kLayers);
  EXPECT_EQ(memory.weight_bytes, 512);
  EXPECT_EQ(memory.slot_bytes, 240);
  EXPECT_EQ(memory.rank_kv_tokens, 15);
  EXPECT_EQ(memory.kv_tokens, 30);
}

TEST(WeightMemory, LayersThatDoNotDivideEvenlyLeaveRanksWithLess) {
  StepProfile profile = Small(1200);
  profile.shape.layers = 3;  // 1088 bytes of all; ranks own two layers and one; KV has 24 a token
  const WeightMemory memory = SharedMemory(profile, 2, SlotBytes::kLayers);
  EXPECT_EQ(memory.weight_bytes, 1088 - 240);
  EXPECT_EQ(memory.rank_kv_tokens, 4);  // (1200 - 848 - 240) / 24
  EXPECT_EQ(memory.kv_tokens, 4 + 14);  // (1200 - 608 - 240) / 24
}

TEST(WeightMemory, AnInstanceOfSeveralDevicesHasTheirMemoryTogether) {
  const WeightMemory memory = FullMemory(Small(500, 2), 1);
  EXPECT_EQ(memory.kv_tokens, 15);
}

TEST(WeightMemory, TheTwoReadingsOfTheSlotsDiffer) {
  const OfflineProfile profile =
      MakeOfflineProfile(*FindOfflineModel("llama-3.1-70b"), *FindOfflineDevice("h20"), 0.9, 1);
  // 3 x 8,192 x 28,672 weights of two bytes.
  EXPECT_EQ(FeedForwardLayerBytes(profile.step), 1409286144);
  EXPECT_EQ(SharedMemory(profile.step, 8, SlotBytes::kLayers).slot_bytes, 7.0 * 1409286144);
  EXPECT_EQ(SharedMemory(profile.step, 8, SlotBytes::kTiles).slot_bytes, kMostTileBytes);
}

TEST(WeightMemory, OneRankHasNothingToShare) {
  const WeightMemory full = FullMemory(Small(1000), 1);
  const WeightMemory shared = SharedMemory(Small(1000), 1, SlotBytes::kLayers);
  EXPECT_EQ(shared.kv_tokens, full.kv_tokens);
  EXPECT_EQ(shared.weight_bytes, full.weight_bytes);
  EXPECT_EQ(shared.slot_bytes, 0);
}

TEST(WeightMemory, WeightsThatDoNotFitLeaveNoKv) {
  EXPECT_EQ(FullMemory(Small(700), 2).kv_tokens, 0);
  EXPECT_EQ(SharedMemory(Small(700), 2, SlotBytes::kLayers).kv_tokens, 0);
}

// SiDP, section 5.2 and figure 2, by the prose; 0.9 of 144 GB.
TEST(WeightMemory, ThePapersRatiosOfKvHold) {
  const auto tokens = [](const char* model, int64_t tp, bool is_shared) {
    const StepProfile profile =
        MakeOfflineProfile(*FindOfflineModel(model), *FindOfflineDevice("h20"), 0.9, tp).step;
    const WeightMemory memory =
        is_shared ? SharedMemory(profile, 8 / tp, SlotBytes::kTiles) : FullMemory(profile, 8 / tp);
    return static_cast<double>(memory.kv_tokens);
  };
  const auto gain = [&](const char* model, int64_t tp) {
    return tokens(model, tp, true) / tokens(model, tp, false);
  };
  EXPECT_NEAR(gain("llama-3.1-70b", 2), 1.7, 0.05);
  EXPECT_NEAR(gain("qwen2.5-72b", 2), 1.7, 0.05);
  EXPECT_NEAR(gain("qwen3-32b", 4), 1.05, 0.01);
  EXPECT_EQ(tokens("llama-3.1-70b", 1, false), 0);
  EXPECT_EQ(tokens("qwen2.5-72b", 1, false), 0);
  EXPECT_GT(tokens("llama-3.1-70b", 1, true), 1.0e6);
  EXPECT_GT(tokens("qwen2.5-72b", 1, true), 1.0e6);
  EXPECT_NEAR(1 - tokens("qwen3-32b", 1, false) / tokens("qwen3-32b", 8, false), 0.45, 0.03);
}

}  // namespace
}  // namespace skein::scheduler
