#include "scheduler/kv/handoff_shape.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

const HandoffShape kShape{
    {.num_layers = 2, .kv_heads = 4, .head_dim = 8, .block_tokens = 16, .dtype = DType::kBF16},
    "abc"};

TEST(HandoffShapeTest, SameShapesAgree) { EXPECT_TRUE(CheckSameShape(kShape, kShape).ok()); }

TEST(HandoffShapeTest, AMismatchIsRefusedWithTheFieldAndBothValues) {
  HandoffShape other = kShape;
  other.dtype = DType::kF32;
  EXPECT_EQ(CheckSameShape(other, kShape),
            absl::FailedPreconditionError("dtype: prefill f32, decode bf16"));
  other = kShape;
  other.model_hash = "xyz";
  EXPECT_EQ(CheckSameShape(other, kShape, "new worker", "model's pool"),
            absl::FailedPreconditionError("model_hash: new worker xyz, model's pool abc"));
}

TEST(HandoffShapeTest, EveryFieldIsCompared) {
  const auto refused = [](auto change) {
    HandoffShape other = kShape;
    change(other);
    return CheckSameShape(other, kShape).code() == absl::StatusCode::kFailedPrecondition;
  };
  EXPECT_TRUE(refused([](HandoffShape& s) { s.layout.tp = 2; }));
  EXPECT_TRUE(refused([](HandoffShape& s) { s.block_tokens = 32; }));
  EXPECT_TRUE(refused([](HandoffShape& s) { s.num_layers = 3; }));
  EXPECT_TRUE(refused([](HandoffShape& s) { s.kv_heads = 1; }));
  EXPECT_TRUE(refused([](HandoffShape& s) { s.head_dim = 1; }));
}

TEST(HandoffShapeTest, BlocksRoundUpAndAHandoffMovesWholeBlocks) {
  EXPECT_EQ(BlocksOf(kShape, 1), 1);
  EXPECT_EQ(BlocksOf(kShape, 16), 1);
  EXPECT_EQ(BlocksOf(kShape, 17), 2);
  EXPECT_EQ(HandoffBytesPerLayer(kShape, 17), 4096);
}

TEST(HandoffShapeTest, ABlockOfALargerGroupHoldsMoreTokensInTheSameBytes) {
  HandoffShape shape = kShape;
  shape.layout.tp = 2;
  EXPECT_EQ(TokensPerBlock(shape), 32);
  EXPECT_EQ(BlocksOf(shape, 33), 2);
  EXPECT_EQ(HandoffBytesPerLayer(shape, 33), 4096);
  shape.layout.tp = 8;  // two ranks hold each of the four heads
  EXPECT_EQ(TokensPerBlock(shape), 64);
}

}  // namespace
}  // namespace skein::scheduler
