// The attention kernels on the emulator against ReferenceOps: random batches of all kinds of spans
// and layouts, whole and split, in several orders of the threads. (wgmma_test.cc: Hopper's own.)
#include "engine/cuda/attention/attention.h"

#include <memory>
#include <random>
#include <vector>

#include "engine/cuda/attention/cuda_attention.h"
#include "engine/cuda/attention/testing/attention_case.h"
#include "engine/cuda/device/device_tables.h"
#include "engine/cuda/emulator/grid.h"
#include "engine/device/cpu_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using attention_testing::Batch;
using attention_testing::Case;
using attention_testing::kSplitAll;
using attention_testing::Sequence;

class Attention : public testing::Test {
 protected:
  static void Check(const Batch& batch, const AttentionPolicy& policy = {}) {
    static uint32_t seed = 0;
    constexpr simt::Order kOrders[] = {simt::Order::kBackward, simt::Order::kForward,
                                       simt::Order::kShuffled};
    simt::SetOrder(kOrders[++seed % 3]);
    SCOPED_TRACE(DescriptionOf(batch, policy));
    Case(batch, seed).Check(policy);
  }
};

constexpr DType kFlashDTypes[] = {DType::kBF16, DType::kF16};

// A slice of each kind of tile, behind histories, with keys of their own, and decode.
const std::vector<Sequence> kMixed = {{70, 1}, {0, 9}, {3, 40}, {90, 2, 65}, {5, 3, 0}, {130, 1}};

TEST_F(Attention, HeadDims) {
  for (const int head_dim : {8, 16, 24, 32, 48, 64, 80, 128}) {
    Check({kFlashDTypes[head_dim / 8 % 2], 4, 2, head_dim, 16, kMixed});
  }
  Check({DType::kBF16, 4, 2, 256, 16, {{70, 1}, {3, 40}}});
  Check({DType::kF16, 4, 2, 200, 16, {{70, 1}, {3, 40}}}, kSplitAll);
}

TEST_F(Attention, DTypesAndOutputs) {
  for (const DType dtype : kFlashDTypes) {
    for (const DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t padding : {0, 3}) {
        Check({dtype, 4, 2, 16, 16, kMixed, out, padding, padding == 0});
        Check({dtype, 4, 2, 16, 16, kMixed, out, padding, padding == 0}, kSplitAll);
      }
    }
  }
}

TEST_F(Attention, Groupings) {
  struct Heads {
    int heads, kv_heads;
  };
  for (const Heads h : {Heads{1, 1}, Heads{3, 3}, Heads{6, 2}, Heads{7, 1}, Heads{20, 1},
                        Heads{71, 1}, Heads{8, 2}}) {
    Check({DType::kBF16, h.heads, h.kv_heads, 32, 16, {{70, 1}, {20, 7}}});
    Check({DType::kBF16, h.heads, h.kv_heads, 32, 16, {{150, 1}, {130, 7}}}, kSplitAll);
  }
}

TEST_F(Attention, BlockSizesAndLayouts) {
  for (const int block_tokens : {1, 3, 16, 64}) {
    for (const int tp : {1, 2, 4}) {
      std::vector<Sequence> sequences = kMixed;
      // Layouts mix in a batch.
      for (size_t i = 0; i < sequences.size(); i += 2) sequences[i].tp = tp;
      Check({DType::kBF16, 8, 4, 16, block_tokens, sequences});
    }
  }
}

// Around the edges of tiles of keys and of rows.
TEST_F(Attention, Edges) {
  for (const int64_t keys : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 192, 193, 256, 257}) {
    Check({DType::kF16, 2, 1, 16, 16, {{keys - 1, 1}, {300, 2, keys}}});
    Check({DType::kF16, 2, 1, 16, 16, {{keys - 1, 1}, {300, 2, keys}}}, kSplitAll);
  }
  for (const int64_t tokens : {8, 9, 31, 32, 33, 63, 64, 65, 129}) {
    Check({DType::kF16, 2, 1, 16, 16, {{0, tokens}, {61, tokens}, {200, tokens, 70}}});
  }
}

TEST_F(Attention, LongerHistories) {
  Check({DType::kBF16, 4, 1, 64, 16, {{700, 1}, {601, 3}}});
  Check({DType::kBF16, 4, 1, 128, 16, {{400, 1}, {200, 50}}}, kSplitAll);
  Check({DType::kF16, 2, 2, 128, 16, {{0, 150}}});
  Check({DType::kF16, 2, 2, 64, 16, {{70, 140}}}, kSplitAll);
}

TEST_F(Attention, RandomBatches) {
  std::mt19937 random(11);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 30; ++round) {
    const int kv_heads = draw(1, 2);
    const int head_dims[] = {16, 32, 40, 64};
    Batch batch = {kFlashDTypes[draw(0, 1)], kv_heads * draw(1, 5), kv_heads,
                   head_dims[draw(0, 3)],    draw(1, 20),           {}};
    for (int i = draw(1, 4); i > 0; --i) {
      batch.sequences.push_back({draw(0, 150), draw(0, 2) == 0 ? draw(1, 60) : 1,
                                 draw(0, 4) == 0 ? draw(0, 150) : -1, draw(1, kv_heads)});
    }
    Check(batch, draw(0, 1) == 0 ? AttentionPolicy{} : kSplitAll);
  }
}

TEST_F(Attention, SpansAreIndependent) {
  Case c({DType::kBF16, 8, 2, 32, 16, {{130, 1}, {0, 1}, {700, 1}, {3, 20}, {64, 70}}}, 1);
  c.CheckSpansAreIndependent({}, WideKernel::kMmaSync);
}

// A graph's grid gives the same bits.
TEST_F(Attention, TheGridOfAGraphServesAnyLengths) {
  const AttentionPolicy policy = {8, 64, 64, 3};
  DecodeGraphBounds bounds = BoundDecode(3, 8, 2, policy);
  bounds.grid.items[0] = 2;  // blocks take several items in turn
  for (const int64_t longest : {5, 100, 400}) {
    Case c({DType::kF16, 8, 2, 32, 16, {{longest, 1}, {0, 1}, {longest / 2, 1}}}, 1);
    const Case::Result own = c.Run(policy), graph = c.Run(policy, &bounds);
    ExpectSame(graph.out, own.out, "attention");
    ExpectSame(graph.lse, own.lse, "lse");
    c.Check(policy);
  }
}

// Several batches through one CudaAttention, f32 and odd head_dims among them: its plan and scratch
// follow.
TEST_F(Attention, CudaAttentionTakesAnyBatch) {
  const std::shared_ptr<Device> device = MakeCpuDevice();
  DeviceTables tables(device);
  CudaAttention attention(device, nullptr, kSplitAll);
  const Batch batches[] = {{DType::kBF16, 4, 2, 16, 16, {{70, 1}, {3, 5}}},
                           {DType::kBF16, 4, 2, 32, 16, {{700, 1}, {3, 20}}},
                           {DType::kBF16, 4, 2, 32, 16, {{70, 1}}},
                           {DType::kF32, 4, 2, 16, 16, {{70, 1}, {3, 5}}},
                           {DType::kF16, 4, 2, 9, 16, {{70, 1}, {3, 5}}}};
  for (const Batch& batch : batches) {
    Case c(batch, 1);
    const Case::Result expected = c.Expected();
    for (int layer = 0; layer < 2; ++layer) {
      const Case::Result actual = c.RunKept(&attention, &tables);
      ExpectNear(actual.out, expected.out, 4e-3, 4e-3, "attention");
      ExpectNear(actual.lse, expected.lse, 1e-4, 1e-5, "lse");
    }
  }
}

TEST_F(Attention, WhatIsForTheOtherKernels) {
  alignas(16) std::byte pool[32];
  EXPECT_TRUE(FlashAttentionTakes({pool, DType::kBF16, 128, 4096}, 0.1f));
  EXPECT_FALSE(FlashAttentionTakes({pool, DType::kF32, 128, 4096}, 0.1f));
  EXPECT_FALSE(FlashAttentionTakes({pool, DType::kBF16, 9, 288}, 0.1f));
  EXPECT_FALSE(FlashAttentionTakes({pool, DType::kBF16, 264, 264 * 32}, 0.1f));
  EXPECT_FALSE(FlashAttentionTakes({pool + 2, DType::kBF16, 128, 4096}, 0.1f));
  EXPECT_FALSE(FlashAttentionTakes({pool, DType::kBF16, 128, 4096}, -0.1f));
}

}  // namespace
}  // namespace skein::engine
