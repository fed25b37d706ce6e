#include "scheduler/worker/decode/decode_ends.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_parts.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using DecodeEndsTest = testing::DecodePartsTest;

TEST_F(DecodeEndsTest, AnEndGivesTheBlocksBackAndIsToldOnce) {
  DecodeSequence& sequence = Start(1, 6);
  effects_.clear();
  ends_.TakeTouched();
  ends_.End(sequence, FinishReason::kError, absl::InternalError("NaN"));
  Check();
  EXPECT_FALSE(kv_in_.Has({7, 1}));
  EXPECT_EQ(Of<ReleaseSequence>(effects_).size(), 1u) << "the engine forgets it";
  EXPECT_EQ(ends_.TakeTouched(), std::vector<RequestId>({{7, 1}}));
  EXPECT_EQ(ends_.failed(), 1u);
  EXPECT_TRUE(ends_.tombstones().Committed({7, 1}, kEpoch));
  ends_.End(sequence, FinishReason::kCancelled, absl::CancelledError("once more"));
  const auto ended = Ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(absl::IsInternal(ended.at(1).status));
  EXPECT_EQ(ends_.failed(), 1u);
}

TEST_F(DecodeEndsTest, AWholeAnswerIsToldWhenItsRouterHasCome) {
  DecodeSequence& sequence = Start(1, 6);
  ends_.End(sequence, FinishReason::kLength, absl::OkStatus());
  EXPECT_TRUE(Ended().empty()) << "if no router comes, it is planned anew";
  ends_.ForgetIfOver({7, 1});
  ASSERT_NE(sequences_.Find({7, 1}), nullptr) << "its router may still come";
  ends_.Tell(sequence);
  sequences_.Attach(sequence, {4});
  EXPECT_EQ(Ended().size(), 1u);
  EXPECT_EQ(ends_.finished(), 1u);
  ends_.ForgetIfOver({7, 1});
  EXPECT_EQ(sequences_.Find({7, 1}), nullptr);
  Check();
  ends_.ForgetIfOver({7, 1});
}

TEST_F(DecodeEndsTest, AllEndWhenTheProcessGoes) {
  Start(1, 6);
  MakeWhole(testing::Spec(2));
  DecodeSequence& whole = Start(3, 6);
  ends_.End(whole, FinishReason::kLength, absl::OkStatus());
  ends_.EndAll(absl::UnavailableError("going away"));
  Check();
  const auto ended = Ended();
  ASSERT_EQ(ended.size(), 3u);
  EXPECT_TRUE(absl::IsUnavailable(ended.at(1).status));
  EXPECT_TRUE(absl::IsUnavailable(ended.at(2).status));
  EXPECT_TRUE(ended.at(3).status.ok()) << "it was whole";
}

TEST_F(DecodeEndsTest, WhatIsBuriedIsKnownAsEnded) {
  expected_streams_.Add({7, 1}, kEpoch, {70});
  ends_.Bury({7, 1}, kEpoch, absl::CancelledError("why"));
  ASSERT_EQ(Of<EndStream>(effects_).size(), 1u) << "the router that came ahead of the blocks";
  EXPECT_EQ(Of<EndStream>(effects_)[0].call, CallId{70});
  EXPECT_TRUE(absl::IsCancelled(Of<EndStream>(effects_)[0].status));
  EXPECT_TRUE(ends_.tombstones().Covers({7, 1}, kEpoch));
  EXPECT_FALSE(ends_.tombstones().Covers({7, 1}, {kEpoch.value + 1}));
  EXPECT_TRUE(Ended().empty());
}

}  // namespace
}  // namespace skein::scheduler
