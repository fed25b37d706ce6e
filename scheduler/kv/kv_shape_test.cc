#include "scheduler/kv/kv_shape.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

const KvShape kShape{.model_hash = "abc",
                     .dtype = "bf16",
                     .layout = {},
                     .block_tokens = 16,
                     .num_layers = 2,
                     .kv_heads = 4,
                     .head_dim = 8,
                     .block_bytes = 2048};

TEST(KvShapeTest, SameShapesAgree) { EXPECT_TRUE(CheckSameShape(kShape, kShape).ok()); }

TEST(KvShapeTest, AMismatchIsRefusedWithTheFieldAndBothValues) {
  KvShape other = kShape;
  other.dtype = "f32";
  EXPECT_EQ(CheckSameShape(other, kShape),
            absl::FailedPreconditionError("dtype: prefill f32, decode bf16"));
  other = kShape;
  other.model_hash = "xyz";
  EXPECT_EQ(CheckSameShape(other, kShape, "new worker", "model's pool"),
            absl::FailedPreconditionError("model_hash: new worker xyz, model's pool abc"));
}

TEST(KvShapeTest, EveryFieldIsCompared) {
  const auto refused = [](auto change) {
    KvShape other = kShape;
    change(other);
    return CheckSameShape(other, kShape).code() == absl::StatusCode::kFailedPrecondition;
  };
  EXPECT_TRUE(refused([](KvShape& s) { s.layout.tp = 2; }));
  EXPECT_TRUE(refused([](KvShape& s) { s.block_tokens = 32; }));
  EXPECT_TRUE(refused([](KvShape& s) { s.num_layers = 3; }));
  EXPECT_TRUE(refused([](KvShape& s) { s.kv_heads = 1; }));
  EXPECT_TRUE(refused([](KvShape& s) { s.head_dim = 1; }));
  EXPECT_TRUE(refused([](KvShape& s) { s.block_bytes = 1; }));
}

TEST(KvShapeTest, BlocksRoundUpAndAHandoffMovesWholeBlocks) {
  EXPECT_EQ(BlocksOf(kShape, 1), 1);
  EXPECT_EQ(BlocksOf(kShape, 16), 1);
  EXPECT_EQ(BlocksOf(kShape, 17), 2);
  EXPECT_EQ(HandoffBytesPerLayer(kShape, 17), 4096);
}

TEST(KvShapeTest, ABlockOfALargerGroupHoldsMoreTokensInTheSameBytes) {
  KvShape shape = kShape;
  shape.layout.tp = 2;
  EXPECT_EQ(TokensPerBlock(shape), 32);
  EXPECT_EQ(BlocksOf(shape, 33), 2);
  EXPECT_EQ(HandoffBytesPerLayer(shape, 33), 4096);
  shape.layout.tp = 8;  // two ranks hold each of the four heads
  EXPECT_EQ(TokensPerBlock(shape), 64);
}

}  // namespace
}  // namespace skein::scheduler
