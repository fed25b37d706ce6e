// Wide tiles on Hopper's kernel, which runs on the emulator in several orders of the threads,
// against ReferenceOps: the emulator ends the process where the kernel's asynchronous parts are not
// ordered.
#include "engine/cuda/attention/attention.h"

#include <memory>
#include <random>
#include <vector>

#include "engine/cuda/attention/testing/attention_case.h"
#include "engine/cuda/emulator/grid.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using attention_testing::Batch;
using attention_testing::Case;
using attention_testing::kSplitAll;
using attention_testing::Sequence;

class WgmmaAttention : public testing::Test {
 protected:
  static void Check(const Batch& batch, const AttentionPolicy& policy = {}) {
    static uint32_t seed = 0;
    constexpr simt::Order kOrders[] = {simt::Order::kBackward, simt::Order::kForward,
                                       simt::Order::kShuffled};
    simt::SetOrder(kOrders[++seed % 3]);
    SCOPED_TRACE(DescriptionOf(batch, policy));
    ASSERT_TRUE(WgmmaTakes(batch.head_dim));
    Case(batch, seed).Check(policy, WideKernel::kWgmma);
  }
};

constexpr DType kDTypes[] = {DType::kBF16, DType::kF16};

// Wide tiles behind histories, with keys of their own or none, beside other kinds of tiles.
const std::vector<Sequence> kMixed = {{0, 70}, {70, 1},    {130, 90, 65},
                                      {3, 40}, {5, 40, 0}, {190, 80}};

TEST_F(WgmmaAttention, HeadDims) {
  for (const int head_dim : {40, 48, 64, 72, 80, 96, 120, 128}) {
    Check({kDTypes[head_dim / 8 % 2], 4, 2, head_dim, 16, kMixed});
    Check({kDTypes[head_dim / 8 % 2 ^ 1], 4, 2, head_dim, 16, kMixed}, kSplitAll);
  }
}

TEST_F(WgmmaAttention, DTypesAndOutputs) {
  for (const DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t padding : {0, 3}) {
      Check({DType::kF16, 4, 2, 40, 16, kMixed, out, padding, padding == 0});
      Check({DType::kBF16, 4, 2, 40, 16, kMixed, out, padding, padding == 0}, kSplitAll);
    }
  }
}

TEST_F(WgmmaAttention, Groupings) {
  struct Heads {
    int heads, kv_heads;
  };
  for (const Heads h : {Heads{1, 1}, Heads{3, 3}, Heads{6, 2}, Heads{7, 1}, Heads{20, 1},
                        Heads{71, 1}, Heads{8, 2}}) {
    const int64_t tokens = 150 / (h.heads / h.kv_heads) + 1;
    Check({DType::kBF16, h.heads, h.kv_heads, 64, 16, {{130, tokens}}});
    Check({DType::kBF16, h.heads, h.kv_heads, 64, 16, {{150, 3}, {130, tokens}}}, kSplitAll);
  }
}

TEST_F(WgmmaAttention, BlockSizesAndLayouts) {
  for (const int block_tokens : {1, 3, 16, 64}) {
    for (const int tp : {1, 2, 4}) {
      std::vector<Sequence> sequences = kMixed;
      // Layouts mix in a batch.
      for (size_t i = 0; i < sequences.size(); i += 2) sequences[i].tp = tp;
      Check({DType::kBF16, 8, 4, 64, block_tokens, sequences});
    }
  }
}

// Around the edges of tiles of keys and of rows.
TEST_F(WgmmaAttention, Edges) {
  for (const int64_t keys : {1, 63, 64, 65, 127, 128, 129, 192, 193, 255, 256, 257, 384, 385}) {
    Check({DType::kF16, 2, 1, 64, 16, {{300, 33, keys}}});
    Check({DType::kF16, 2, 1, 64, 16, {{keys - 1, 70}}}, kSplitAll);
  }
  for (const int64_t tokens : {33, 63, 64, 65, 96, 127, 128, 129}) {
    Check({DType::kBF16, 2, 1, 64, 16, {{0, tokens}, {61, tokens}, {200, tokens, 70}}});
  }
}

// More tiles than the ring has places, and several items for a block.
TEST_F(WgmmaAttention, LongerHistories) {
  for (int order = 0; order < 3; ++order) {
    Check({DType::kBF16, 4, 1, 128, 16, {{1100, 50}}});
    Check({DType::kF16, 4, 2, 64, 16, {{1200, 40}, {0, 300}, {500, 40}}});
  }
  Check({DType::kF16, 2, 2, 128, 16, {{0, 400}}});
  Check({DType::kBF16, 8, 2, 128, 16, {{1000, 70}, {30, 70}}}, {264, 64, 64, 3});
}

TEST_F(WgmmaAttention, RandomBatches) {
  std::mt19937 random(12);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 25; ++round) {
    const int kv_heads = draw(1, 2);
    const int head_dims[] = {40, 64, 96, 128};
    Batch batch = {kDTypes[draw(0, 1)],   kv_heads * draw(2, 6), kv_heads,
                   head_dims[draw(0, 3)], draw(1, 20),           {}};
    for (int i = draw(1, 4); i > 0; --i) {
      batch.sequences.push_back({draw(0, 500), draw(0, 2) == 0 ? 1 : draw(20, 90),
                                 draw(0, 4) == 0 ? draw(0, 400) : -1, draw(1, kv_heads)});
    }
    Check(batch, draw(0, 1) == 0 ? AttentionPolicy{} : kSplitAll);
  }
}

TEST_F(WgmmaAttention, SpansAreIndependent) {
  Case c({DType::kBF16, 8, 2, 40, 16, {{130, 1}, {0, 90}, {700, 1}, {3, 20}, {64, 70}}}, 1);
  c.CheckSpansAreIndependent({}, WideKernel::kWgmma);
}

// Every item once, whatever the number of blocks.
TEST_F(WgmmaAttention, ManyItems) {
  std::vector<Sequence> sequences;
  for (int i = 0; i < 11; ++i) sequences.push_back({10 * i, 33 + i});
  Check({DType::kBF16, 8, 2, 64, 16, sequences});
}

}  // namespace
}  // namespace skein::engine
