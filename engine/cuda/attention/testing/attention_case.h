// A random batch for the attention kernels, as they see it and as ReferenceOps does. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/attention/cuda_attention.h"
#include "engine/cuda/device/device_tables.h"
#include "engine/ops/conformance/host_buffer.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"

namespace skein::engine::attention_testing {

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
inline constexpr AttentionPolicy kSplitAll = {1 << 20, 64, 64, 128};

inline int64_t KeysOf(const Sequence& s) { return s.keys >= 0 ? s.keys : s.position + s.tokens; }

inline double ToleranceOf(DType dtype) { return dtype == DType::kBF16 ? 4e-3 : 6e-4; }

inline std::string DescriptionOf(const Batch& batch, const AttentionPolicy& policy) {
  return (testing::Message() << NameOf(batch.dtype) << ", " << batch.heads << "/" << batch.kv_heads
                             << " heads of " << batch.head_dim << ", blocks of "
                             << batch.block_tokens << ", " << batch.sequences.size()
                             << " sequences, split from " << policy.decode_keys << " keys")
      .GetString();
}

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
  Result Run(const AttentionPolicy& policy, const DecodeGraphBounds* bounds = nullptr,
             WideKernel wide = WideKernel::kMmaSync) {
    return RunSpans(device_spans_, policy, bounds, wide);
  }
  // As CudaOps calls it.
  Result RunKept(CudaAttention* attention, DeviceTables* tables) {
    Result result = Empty(batch_.out_dtype);
    attention->Attend(
        {q_.view(), BatchOf(device_spans_), Kv(), scale_, result.out.view(), result.lse.view()},
        device_spans_, tables);
    return result;
  }
  Result RunAlone(size_t index, const AttentionPolicy& policy, WideKernel wide) {
    DeviceSpan span = device_spans_[index];
    span.first_row = 0;
    return RunSpans({span}, policy, nullptr, wide);
  }

  void Check(const AttentionPolicy& policy, WideKernel wide = WideKernel::kMmaSync) {
    const Result expected = Expected();
    const Result actual = Run(policy, nullptr, wide);
    const double tolerance = ToleranceOf(batch_.dtype);
    ExpectNear(actual.out, expected.out, tolerance, tolerance + RoundingOf(batch_.out_dtype),
               "attention");
    if (batch_.want_lse) ExpectNear(actual.lse, expected.lse, 1e-4, 1e-5, "lse");
  }
  // Each span's results are the same bits alone and beside the others.
  void CheckSpansAreIndependent(const AttentionPolicy& policy, WideKernel wide) {
    const Result together = Run(policy, nullptr, wide);
    for (size_t i = 0; i < spans_.size(); ++i) {
      const Result alone = RunAlone(i, policy, wide);
      const SequenceSpan& span = spans_[i];
      for (int64_t t = span.token_begin; t < span.token_begin + span.token_count; ++t) {
        for (int64_t col = 0; col < int64_t{batch_.heads} * batch_.head_dim; ++col)
          ASSERT_EQ(alone.out.at(t, col), together.out.at(t, col));
        for (int64_t h = 0; h < batch_.heads; ++h)
          ASSERT_EQ(alone.lse.at(t, h), together.lse.at(t, h));
      }
    }
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
      const int per_block = TokensPerBlock(layout, spec_);
      counts.push_back((KeysOf(s) + per_block - 1) / per_block);
      spec_.num_blocks += counts.back();
      device_spans_.push_back({token, s.position, s.keys, static_cast<int32_t>(s.tokens), row,
                               static_cast<int32_t>(tables_.size()), per_block,
                               KvHeads(layout, spec_), 0});
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
      const int64_t cols = int64_t{KvHeads(spans_[i].layout, spec_)} * batch_.head_dim;
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
                  const DecodeGraphBounds* bounds, WideKernel wide) {
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
                    scratch.data(), partial_rows, wide},
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

}  // namespace skein::engine::attention_testing
