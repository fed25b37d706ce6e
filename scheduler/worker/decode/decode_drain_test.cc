// A drain asks routers to move their streams (stream_moves.h).
#include <gtest/gtest.h>

#include "scheduler/worker/decode/stream_moves.h"
#include "scheduler/worker/testing/decode_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::DecodeCoreTest;
using testing::Of;
using testing::Spec;

// Others have room, as the orchestrator answers to the report that it drains.
TEST_F(DecodeCoreTest, ADrainAsksRoutersToMoveTheirStreamsWhichGoOnUntilThen) {
  for (const uint64_t serial : {1, 2}) {
    ASSERT_TRUE(Open(Spec(serial, 6, 20)).ok());
    Attach(serial, 50 + serial);
    Commit(serial);
  }
  elsewhere_ = {8, 100, 10};
  Effects effects = Do(Drain{20 * kSecondUs});
  ASSERT_EQ(Of<AskToMove>(effects).size(), 1u);
  EXPECT_EQ(Of<AskToMove>(effects)[0].call, CallId{51});
  EXPECT_TRUE(Of<EndStream>(effects).empty());
  EXPECT_EQ(Of<EmitToken>(Step(41)).size(), 1u) << "it goes on";
  effects = Until(StreamMoves::kPaceUs);
  ASSERT_EQ(Of<AskToMove>(effects).size(), 1u);
  EXPECT_EQ(Of<AskToMove>(effects)[0].call, CallId{52});
  Do(DetachCalled{{51}});
  Do(DetachCalled{{52}});
  EXPECT_EQ(reasons_.at({7, 1}), FinishReason::kCancelled);
  EXPECT_EQ(core_.Snapshot(now_).asked_to_move, 2u);
}

TEST_F(DecodeCoreTest, ADrainAsksNobodyWhileNoOtherInstanceHasRoomOrNoOrchestratorIsThere) {
  ASSERT_TRUE(Open(Spec(1, 6, 20)).ok());
  Attach(1, 50);
  Commit(1);
  EXPECT_TRUE(Of<AskToMove>(Do(Drain{20 * kSecondUs})).empty());
  EXPECT_TRUE(Of<AskToMove>(Until(5 * kSecondUs)).empty());
  Do(Disconnected{absl::UnavailableError("broke")});
  elsewhere_ = {8, 100, 10};
  EXPECT_TRUE(Of<AskToMove>(Until(19 * kSecondUs)).empty());
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(Of<EndStream>(Until(20 * kSecondUs)).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
