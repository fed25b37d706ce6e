// The tile kernel and the kernel for few rows add pairs of bf16 in the same order. An emulated
// product shows it on CPUs without AVX512-BF16; //engine/ops/cpu:reproducible_test needs a CPU with
// it.
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "engine/base/f16.h"
#include "engine/ops/cpu/cpu_isa.h"
#include "engine/ops/cpu/kernels/testing/emulated_pairs.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr int kBlockTokens = 5;

// KV of one head and the queries of all its positions.
class Sequence {
 public:
  Sequence(int tokens, int group, int dim) : group_(group), dim_(dim) {
    const int blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    for (int i = blocks; i-- > 0;) table_.push_back(i);
    std::mt19937 random(20261126);
    const auto value = [&] { return static_cast<float>(random() % 4001) / 1000.0f - 2.0f; };
    for (int i = 0; i < blocks * kBlockTokens * dim; ++i) {
      keys_.push_back(ToBF16(value()));
      values_.push_back(ToBF16(value()));
    }
    for (int i = 0; i < tokens * group * dim; ++i) queries_.push_back(value());
  }
  // Rows of positions [begin, begin + count): their results, and behind them each one's lse.
  std::vector<float> Attend(int begin, int count) const {
    std::vector<float> results(static_cast<size_t>(count * group_ * (dim_ + 1)));
    AttentionUnit u;
    u.q = queries_.data() + begin * group_ * dim_;
    u.q_stride = u.out_stride = int64_t{group_} * dim_;
    u.out = results.data();
    u.lse = results.data() + count * group_ * dim_;
    u.lse_stride = u.group = group_;
    u.tokens = count;
    u.head_dim = dim_;
    u.scale = 0.2f;
    u.position = begin;
    u.key_end = begin + count;
    u.exact_rows = true;
    u.keys = keys_.data();
    u.values = values_.data();
    u.kv_dtype = DType::kBF16;
    u.block_table = table_.data();
    u.block_tokens = kBlockTokens;
    u.block_stride = kBlockTokens * dim_;
    const size_t bytes = AttentionScratchBytes(int64_t{count} * group_, dim_);
    std::vector<std::byte> memory(bytes + 64);
    void* scratch = memory.data();
    size_t room = memory.size();
    AttendEmulatedPairs(u, static_cast<std::byte*>(std::align(64, bytes, scratch, room)));
    return results;
  }
  // Row `row` of these is that of position begin + row, alone.
  void ExpectAlone(const std::vector<float>& results, int begin, int row) const {
    const std::vector<float> alone = Attend(begin + row, 1);
    const int columns = group_ * dim_;
    const size_t count = results.size() / static_cast<size_t>(columns + group_);
    const float* lse = results.data() + count * static_cast<size_t>(columns) + row * group_;
    EXPECT_EQ(std::memcmp(alone.data(), results.data() + row * columns, Bytes(columns)), 0);
    EXPECT_EQ(std::memcmp(alone.data() + columns, lse, Bytes(group_)), 0);
  }

 private:
  static size_t Bytes(int floats) { return static_cast<size_t>(floats) * sizeof(float); }

  const int group_, dim_;
  std::vector<int32_t> table_;
  std::vector<BF16> keys_, values_;
  std::vector<float> queries_;
};

TEST(AttentionPairs, ARowIsTheSameInATileAndAlone) {
  if (!IsSupported(CpuIsa::kAvx512)) GTEST_SKIP() << "not on this CPU";
  constexpr int kTokens = 305;
  for (const int dim : {2, 30, 64, 96}) {
    for (const int group : {1, 3, 4, 5, 8}) {
      SCOPED_TRACE(testing::Message() << dim << " per head, groups of " << group);
      const Sequence sequence(kTokens, group, dim);
      for (const int begin : {0, 1, 120, 260}) {
        const std::vector<float> tile = sequence.Attend(begin, 45);
        for (const int row : {0, 1, 7, 8, 31, 44}) sequence.ExpectAlone(tile, begin, row);
      }
    }
  }
}

}  // namespace
}  // namespace skein::engine
