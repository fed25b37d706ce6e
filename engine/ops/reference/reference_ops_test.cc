// The oracle itself is held to values worked out by hand.
#include "engine/ops/reference/reference_ops.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

Matrix View(std::vector<float>* values, int64_t rows) {
  const int64_t cols = static_cast<int64_t>(values->size()) / rows;
  return {values->data(), DType::kF32, rows, cols, cols};
}

TEST(ReferenceOps, MatMulAddsBias) {
  std::vector<float> x = {1, 2}, w = {3, 4, 5, 6, 7, 8}, bias = {10, 20, 30}, out(3);
  ReferenceOps().MatMul(View(&x, 1), View(&w, 3), View(&bias, 1), View(&out, 1));
  EXPECT_EQ(out, (std::vector<float>{21, 37, 53}));
}

TEST(ReferenceOps, RmsNormDividesByRootMeanSquare) {
  std::vector<float> x = {3, 4}, weight = {1, 2}, out(2);
  ReferenceOps().RmsNorm(View(&x, 1), View(&weight, 1), 0.0f, View(&out, 1));
  const float rms = std::sqrt(12.5f);
  EXPECT_FLOAT_EQ(out[0], 3 / rms);
  EXPECT_FLOAT_EQ(out[1], 8 / rms);
}

TEST(ReferenceOps, RopeRotatesHalves) {
  std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> cos = {1, 1, 0, 1}, sin = {0, 0, 1, 0};
  const std::vector<int32_t> positions = {1};
  ReferenceOps().Rope(View(&x, 1), positions, {cos.data(), sin.data(), 2, 4});
  EXPECT_EQ(x, (std::vector<float>{-3, 2, 1, 4}));
}

TEST(ReferenceOps, AttentionIsCausalAndReturnsLse) {
  const KvSpec spec{1, 1, 1, 2, DType::kF32, 2};
  std::vector<float> pool(8, 0.0f);
  const KvLayerView kv{pool.data(), &spec};
  const std::vector<int32_t> table = {1, 0};  // scattered
  const std::vector<SequenceSpan> sequences = {{0, 3, 0, table, {}}};
  std::vector<float> k = {0, std::log(3.0f), 0}, v = {1, 2, 4}, q = {1, 1, 1}, out(3), lse(3);
  ReferenceOps ops;
  ops.StoreKv(View(&k, 3), View(&v, 3), sequences, kv, {});
  EXPECT_EQ(pool[4], 0.0f);  // block 1 holds tokens 0 and 1: two keys, then two values
  EXPECT_EQ(pool[6], 1.0f);
  EXPECT_EQ(pool[2], 4.0f);  // block 0, value of token 2
  ops.PagedAttention(View(&q, 3), sequences, kv, 1.0f, View(&out, 3), View(&lse, 3));
  EXPECT_FLOAT_EQ(out[0], 1.0f);
  EXPECT_FLOAT_EQ(out[1], (1 + 3 * 2) / 4.0f);
  EXPECT_FLOAT_EQ(out[2], (1 + 3 * 2 + 4) / 5.0f);
  EXPECT_FLOAT_EQ(lse[2], std::log(5.0f));
}

TEST(ReferenceOps, AllRowsSeeTheKeysOfTheSpan) {
  const KvSpec spec{1, 1, 1, 2, DType::kF32, 2};
  // Block 0: keys, values of tokens 2 and 3; block 1: of tokens 0 and 1.
  std::vector<float> pool = {std::log(2.0f), 99, 4, 99, 0, std::log(3.0f), 1, 2};
  const std::vector<int32_t> table = {1, 0};
  const std::vector<SequenceSpan> sequences = {{0, 1, 0, table, {}, 3}, {1, 1, 7, table, {}, 0}};
  std::vector<float> q = {1, 1}, out = {5, 5}, lse = {5, 5};
  ReferenceOps().PagedAttention(View(&q, 2), sequences, {pool.data(), &spec}, 1.0f, View(&out, 2),
                                View(&lse, 2));
  EXPECT_FLOAT_EQ(out[0], (1 + 3 * 2 + 2 * 4) / 6.0f);
  EXPECT_FLOAT_EQ(lse[0], std::log(6.0f));
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(lse[1], -std::numeric_limits<float>::infinity());
}

TEST(ReferenceOps, MergeIgnoresASideThatSawNothing) {
  const float none = -std::numeric_limits<float>::infinity();
  std::vector<float> a = {std::nanf("")}, lse_a = {none}, b = {7}, lse_b = {2};
  ReferenceOps().MergeAttention(View(&a, 1), View(&lse_a, 1), View(&b, 1), View(&lse_b, 1));
  EXPECT_EQ(a[0], 7.0f);
  EXPECT_EQ(lse_a[0], 2.0f);
}

TEST(ReferenceOps, SwiGlu) {
  std::vector<float> gate = {0, 1}, up = {5, 2}, out(2);
  ReferenceOps().SwiGlu(View(&gate, 1), View(&up, 1), View(&out, 1));
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_FLOAT_EQ(out[1], 2.0f / (1.0f + std::exp(-1.0f)));
}

}  // namespace
}  // namespace skein::engine
