// The attention kernels on the emulator against ReferenceOps: random batches of all kinds of spans
// and layouts, whole and split, in several orders of the threads.
#include "engine/cuda/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/attention/cuda_attention.h"
#include "engine/cuda/device_tables.h"
#include "engine/cuda/emulator/grid.h"
#include "engine/device/cpu_device.h"
#include "engine/ops/conformance/host_buffer.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

struct Sequence {
  int64_t position, tokens;
  int64_t keys = -1;
  int tp = 1;
};

struct Batch {
  DType dtype;
  int heads, kv_heads, head_dim, block_tokens;
  std::vector<Sequence> sequences;
  DType out_dtype = DType::kF32;
  int64_t padding = 0;  // of the rows of q and out
  bool want_lse = true;
};

// Cuts as small as they get: each tile of keys is a part.
constexpr AttentionPolicy kSplitAll = {1 << 20, 64, 64, 128};

int64_t KeysOf(const Sequence& s) { return s.keys >= 0 ? s.keys : s.position + s.tokens; }

double ToleranceOf(DType dtype) { return dtype == DType::kBF16 ? 4e-3 : 6e-4; }

// A pool in which exactly the keys that some span sees are set; the rest is NaN.
class Case {
 public:
  Case(const Batch& batch, uint32_t seed)
      : batch_(batch),
        random_(seed),
        spec_{1, batch.kv_heads, batch.head_dim, batch.block_tokens, batch.dtype, 0},
        q_(TokensOf(batch), int64_t{batch.heads} * batch.head_dim, DType::kF32, batch.padding) {
    MakeSpans();
    MakePool();
    q_.Fill(&random_);
    // As the kernels round them, so that only their arithmetic is compared.
    for (int64_t t = 0; t < q_.view().rows; ++t) {
      for (int64_t i = 0; i < q_.view().cols; ++i) {
        StoreElement(rounded_, batch.dtype, 0, q_.at(t, i));
        q_.set(t, i, LoadElement(rounded_, batch.dtype, 0));
      }
    }
    scale_ = 1.0f / std::sqrt(static_cast<float>(batch.head_dim));
  }

  struct Result {
    HostBuffer out, lse;
  };
  Result Empty(DType out_dtype) const {
    return {HostBuffer(q_.const_view().rows, q_.const_view().cols, out_dtype, batch_.padding),
            HostBuffer(q_.const_view().rows, batch_.heads, DType::kF32, 1)};
  }

  Result Expected() {
    Result result = Empty(DType::kF32);
    ReferenceOps().PagedAttention(q_.view(), spans_, {pool_.get(), &spec_}, scale_,
                                  result.out.view(), result.lse.view());
    return result;
  }

  // `bounds`: launched with the grid of a graph instead of the plan's.
  Result Run(const AttentionPolicy& policy, const DecodeGraphBounds* bounds = nullptr) {
    return RunSpans(device_spans_, policy, bounds);
  }
  // As CudaOps calls it.
  Result RunKept(CudaAttention* attention, DeviceTables* tables) {
    Result result = Empty(batch_.out_dtype);
    attention->Attend(
        {q_.view(), BatchOf(device_spans_), Kv(), scale_, result.out.view(), result.lse.view()},
        device_spans_, tables);
    return result;
  }
  Result RunAlone(size_t index, const AttentionPolicy& policy) {
    DeviceSpan span = device_spans_[index];
    span.first_row = 0;
    return RunSpans({span}, policy, nullptr);
  }

  void Check(const AttentionPolicy& policy) {
    const Result expected = Expected();
    const Result actual = Run(policy);
    const double tolerance = ToleranceOf(batch_.dtype);
    ExpectNear(actual.out, expected.out, tolerance, tolerance + RoundingOf(batch_.out_dtype),
               "attention");
    if (batch_.want_lse) ExpectNear(actual.lse, expected.lse, 1e-4, 1e-5, "lse");
  }

  const std::vector<SequenceSpan>& spans() const { return spans_; }

 private:
  static int64_t TokensOf(const Batch& batch) {
    int64_t tokens = 1;  // a row of no span before the first
    for (const Sequence& s : batch.sequences) tokens += s.tokens;
    return tokens;
  }

  void MakeSpans() {
    int64_t token = 1;
    int32_t row = 0;
    std::vector<int64_t> counts;
    for (const Sequence& s : batch_.sequences) {
      const KvLayout layout{s.tp};
      const int per_block = layout.TokensPerBlock(spec_);
      counts.push_back((KeysOf(s) + per_block - 1) / per_block);
      spec_.num_blocks += counts.back();
      device_spans_.push_back({token, s.position, s.keys, static_cast<int32_t>(s.tokens), row,
                               static_cast<int32_t>(tables_.size()), per_block,
                               layout.KvHeads(spec_), 0});
      spans_.push_back({token, s.tokens, s.position, {}, layout, s.keys});
      tables_.resize(tables_.size() + static_cast<size_t>(counts.back()));
      token += s.tokens;
      row += static_cast<int32_t>(s.tokens);
    }
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i] = static_cast<int32_t>(i);
    std::shuffle(tables_.begin(), tables_.end(), random_);
    for (size_t i = 0; i < spans_.size(); ++i) {
      spans_[i].block_table = std::span(tables_).subspan(
          static_cast<size_t>(device_spans_[i].table_begin), static_cast<size_t>(counts[i]));
    }
  }

  void MakePool() {
    const int64_t elements =
        spec_.num_blocks * spec_.BlockBytes() / static_cast<int64_t>(BytesOf(batch_.dtype));
    const size_t bytes = static_cast<size_t>(elements) * BytesOf(batch_.dtype);
    pool_.reset(static_cast<std::byte*>(std::aligned_alloc(16, (bytes + 15) / 16 * 16 + 16)));
    for (int64_t i = 0; i < elements; ++i) {
      StoreElement(pool_.get(), batch_.dtype, i, std::nanf(""));
    }
    for (size_t i = 0; i < spans_.size(); ++i) {
      const int64_t keys = KeysOf(batch_.sequences[i]);
      const int64_t cols = int64_t{spans_[i].layout.KvHeads(spec_)} * batch_.head_dim;
      HostBuffer k(keys, cols, DType::kF32), v(keys, cols, DType::kF32);
      k.Fill(&random_);
      v.Fill(&random_);
      const SequenceSpan all = {0, keys, 0, spans_[i].block_table, spans_[i].layout};
      if (keys > 0)
        ReferenceOps().StoreKv(k.view(), v.view(), {&all, 1}, {pool_.get(), &spec_}, {});
    }
  }

  PagedBatch BatchOf(const std::vector<DeviceSpan>& spans) const {
    const int32_t rows = spans.back().first_row + spans.back().token_count;
    return {spans.data(), tables_.data(), static_cast<int32_t>(spans.size()), rows};
  }
  DeviceKv Kv() const {
    return {pool_.get(), batch_.dtype, batch_.head_dim,
            spec_.BlockBytes() / static_cast<int64_t>(BytesOf(batch_.dtype))};
  }

  Result RunSpans(const std::vector<DeviceSpan>& spans, const AttentionPolicy& policy,
                  const DecodeGraphBounds* bounds) {
    AttentionPlan plan(policy);
    plan.Build(spans, batch_.heads, batch_.head_dim);
    const int64_t partial_rows = bounds != nullptr ? bounds->partial_rows : plan.partial_rows();
    std::vector<float> scratch(AttentionScratchBytes(partial_rows, batch_.head_dim) / 4,
                               std::nanf(""));
    Result result = Empty(batch_.out_dtype);
    EXPECT_TRUE(FlashAttentionTakes(Kv(), scale_));
    FlashAttention({q_.view(), BatchOf(spans), Kv(), scale_, result.out.view(),
                    batch_.want_lse ? result.lse.view() : Matrix{}},
                   {bounds != nullptr ? bounds->grid : plan.grid(), plan.bytes().data(),
                    scratch.data(), partial_rows},
                   nullptr);
    return result;
  }

  struct FreeAligned {
    void operator()(std::byte* p) const { std::free(p); }
  };

  const Batch batch_;
  std::mt19937 random_;
  KvSpec spec_;
  HostBuffer q_;
  alignas(4) std::byte rounded_[4];
  float scale_;
  std::vector<int32_t> tables_;
  std::vector<SequenceSpan> spans_;
  std::vector<DeviceSpan> device_spans_;
  std::unique_ptr<std::byte, FreeAligned> pool_;
};

class Attention : public testing::Test {
 protected:
  static void Check(const Batch& batch, const AttentionPolicy& policy = {}) {
    static uint32_t seed = 0;
    constexpr simt::Order kOrders[] = {simt::Order::kBackward, simt::Order::kForward,
                                       simt::Order::kShuffled};
    simt::SetOrder(kOrders[++seed % 3]);
    SCOPED_TRACE(testing::Message()
                 << NameOf(batch.dtype) << ", " << batch.heads << "/" << batch.kv_heads
                 << " heads of " << batch.head_dim << ", blocks of " << batch.block_tokens << ", "
                 << batch.sequences.size() << " sequences, split from " << policy.decode_keys
                 << " keys");
    Case(batch, seed).Check(policy);
  }
};

constexpr DType kFlashDTypes[] = {DType::kBF16, DType::kF16};

// A chunk of each kind of tile, behind histories, with keys of their own, and decode.
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

// A span's results are the same bits alone, beside others, and through the grid of a graph.
TEST_F(Attention, SpansAreIndependent) {
  Case c({DType::kBF16, 8, 2, 32, 16, {{130, 1}, {0, 1}, {700, 1}, {3, 20}, {64, 70}}}, 1);
  const Case::Result together = c.Run({});
  for (size_t i = 0; i < c.spans().size(); ++i) {
    const Case::Result alone = c.RunAlone(i, {});
    const SequenceSpan& span = c.spans()[i];
    for (int64_t t = span.token_begin; t < span.token_begin + span.token_count; ++t) {
      for (int64_t col = 0; col < 8 * 32; ++col)
        ASSERT_EQ(alone.out.at(t, col), together.out.at(t, col));
      for (int64_t h = 0; h < 8; ++h) ASSERT_EQ(alone.lse.at(t, h), together.lse.at(t, h));
    }
  }
}

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
