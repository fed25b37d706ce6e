// How a PrefillCore gets decode places for its requests, and opens their transfers.
#include <gtest/gtest.h>

#include "scheduler/worker/testing/prefill_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::PrefillCoreTest;
using testing::PrefillTestConfig;
using testing::Spec;

TEST_F(PrefillCoreTest, Invariant3RequestsAskInPlanOrderAndNoneOvertakes) {
  Assign(Spec(1), 10);
  Assign(Spec(2), 20);
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(3), 40)).empty());  // open_ahead is 2
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(4), 30)).empty());
  const Effects effects = Do(CancelCalled{{{7, 1}, {5}, "test"}});
  ASSERT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Of<CallPlaceDecode>(effects)[0].request.id, (RequestId{7, 4}));
}

TEST_F(PrefillCoreTest, ShortPromptsAskAsFarAheadAsTwoStepsHaveRoomFor) {
  for (uint64_t i = 1; i <= 8; ++i) {  // of one token; a step has room for 4
    EXPECT_EQ(Of<CallPlaceDecode>(Assign(Spec(i, 1))).size(), 1u) << i;
  }
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(9, 1))).empty());
}

TEST_F(PrefillCoreTest, ALargePromptThatWaitsForBlocksIsNotOvertaken) {
  Assign(Spec(1, 24), 10);  // 6 of 10 blocks
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(2, 24), 20)).empty());
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(3, 4), 30)).empty());
}

// The orchestrator may not hear it of the decode instance.
TEST_F(PrefillCoreTest, ReportsThatItHasOpenedTheTransfer) {
  Assign(Spec(1));
  Assign(Spec(2));
  const auto opened = [](const std::vector<HeldRequest>& held) {
    std::set<uint64_t> serials;
    for (const HeldRequest& one : held) {
      if (one.opened) serials.insert(one.id.serial);
    }
    return serials;
  };
  Place(1);
  auto reports = Of<CallReport>(Do(CancelCalled{{{7, 2}, {5}, "test"}}));
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(opened(reports[0].request.held).empty()) << "it has only asked for it";
  Assign(Spec(3));
  Grant(1, 2, /*lease_us=*/1'000'000);
  reports = Of<CallReport>(Do(CancelCalled{{{7, 3}, {5}, "test"}}));
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(opened(reports[0].request.held), (std::set<uint64_t>{1}));
  Do(Disconnected{absl::UnavailableError("broke")});
  now_ += 100'000;  // it tries again within
  const auto registers = Of<CallRegister>(Do(Tick{}));
  ASSERT_EQ(registers.size(), 1u);
  EXPECT_EQ(opened(registers[0].request.held), (std::set<uint64_t>{1}));
}

TEST_F(PrefillCoreTest, AsksAgainWhenThereIsNoRoom) {
  Assign(Spec(1));
  Do(PlaceDecodeReplied{{7, 1}, {5}, {absl::ResourceExhaustedError("no room"), {}}});
  EXPECT_EQ(core_.NextDeadline(), 50);
  now_ += 50;
  EXPECT_EQ(Of<CallPlaceDecode>(Do(Tick{})).size(), 1u);
}

TEST_F(PrefillCoreTest, AsksAgainOnTheNextStreamAndGivesUpWithoutOne) {
  Assign(Spec(1));
  Assign(Spec(2));
  Place(2);
  Grant(2, 2, /*lease_us=*/1'000'000);
  const auto disconnected = Do(Disconnected{absl::UnavailableError("broke")});
  EXPECT_TRUE(Of<CallPlaceDecode>(disconnected).empty());
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(3))).empty());
  now_ += 100'000;  // place_decode_give_up_us
  const auto given_up = Do(Tick{});
  EXPECT_TRUE(Of<CallPlaceDecode>(given_up).empty());
  EXPECT_EQ(core_.Snapshot(now_).failed, 1u);
  const auto registers = Of<CallRegister>(given_up);
  ASSERT_EQ(registers.size(), 1u);
  EXPECT_EQ(registers[0].request.held.size() + registers[0].request.ended.size(), 3u);
  Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}});
  EXPECT_EQ(ended_.count({7, 1}) + ended_.count({7, 2}) + ended_.count({7, 3}), 0u)
      << "what the registration told is not told again";
}

TEST_F(PrefillCoreTest, AWelcomeCancelsWhatNobodyKnowsAndBringsTheQuestionsAgain) {
  Assign(Spec(1));
  Assign(Spec(2));
  Do(Disconnected{absl::UnavailableError("broke")});
  now_ = core_.NextDeadline();
  ASSERT_EQ(Of<CallRegister>(Do(Tick{})).size(), 1u);
  const auto effects = Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000, {{{7, 2}, {5}}}}});
  ASSERT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Of<CallPlaceDecode>(effects)[0].request.id, (RequestId{7, 1}));
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kCancelled);
}

TEST_F(PrefillCoreTest, OnlyWhatWasAskedOfTheDecodeSideIsAborted) {
  Assign(Spec(1));
  EXPECT_TRUE(Of<CallAbort>(Do(CancelCalled{{{7, 1}, {5}, "test"}})).empty());
  EXPECT_TRUE(Place(1).empty()) << "it comes late";
  Assign(Spec(2));
  Place(2);  // OpenTransfer is unanswered: the decode side may have taken blocks for it
  const auto aborts = Of<CallAbort>(Do(CancelCalled{{{7, 2}, {5}, "test"}}));
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].endpoint, "d:1");
  EXPECT_TRUE(Grant(2).empty());
}

TEST_F(PrefillCoreTest, APlaceThatCameWithThePlanIsOpenedWithoutAQuestion) {
  AssignRequest assign{Spec(1), {5}, {1}};
  assign.placed = Placed{{5}, {4}, "d:1"};
  Effects effects = Do(AssignCalled{{++calls_}, assign});
  EXPECT_TRUE(Of<CallPlaceDecode>(effects).empty());
  EXPECT_EQ(Of<CallOpenTransfer>(effects).at(0).endpoint, "d:1");
  EXPECT_EQ(Of<RunStep>(effects).size(), 1u);
  EXPECT_EQ(Of<StartHandoff>(Grant(1)).size(), 1u);
  // One that waits for its turn opens nothing.
  for (uint64_t serial : {2, 3, 4}) {
    AssignRequest next{Spec(serial), {5}, {serial}};
    next.placed = Placed{{5}, {4}, "d:1"};
    effects = Do(AssignCalled{{++calls_}, next});
    EXPECT_EQ(Of<CallOpenTransfer>(effects).size(), serial == 2 ? 1u : 0u);
  }
  EXPECT_EQ(core_.Snapshot(now_).queued, 2);
}

TEST_F(PrefillCoreTest, ADecodeSideThatIsFullIsToldAndAnotherOpened) {
  AssignRequest assign{Spec(1), {5}, {1}};
  assign.placed = Placed{{5}, {4}, "d:1"};
  Do(AssignCalled{{++calls_}, assign});
  const absl::Status full = absl::ResourceExhaustedError("3 blocks wanted, 1 free");
  Effects effects = Do(OpenTransferReplied{{7, 1}, {5}, {full}});
  EXPECT_TRUE(Of<CallAbort>(effects).empty()) << "it took nothing";
  const PlaceDecodeRequest asked = Of<CallPlaceDecode>(effects).at(0).request;
  EXPECT_EQ(asked.refused_by, InstanceId{4});
  EXPECT_EQ(asked.why, full);
  EXPECT_EQ(Held(), 2) << "it is computed meanwhile";
  effects = Do(PlaceDecodeReplied{{7, 1}, {5}, {{}, {{5}, {6}, "d:2"}}});
  EXPECT_EQ(Of<CallOpenTransfer>(effects).at(0).endpoint, "d:2");
  EXPECT_EQ(Of<StartHandoff>(Grant(1)).at(0).endpoint, "d:2");
}

TEST_F(PrefillCoreTest, ADecodeSideThatCannotBeReachedIsReplacedToo) {
  Assign(Spec(1));
  Place(1);
  for (int attempt = 1; attempt < PrefillTestConfig().attempts; ++attempt) {
    const auto none = Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
    EXPECT_TRUE(Of<CallPlaceDecode>(none).empty());
    now_ += PrefillTestConfig().retry_us;
    EXPECT_EQ(Of<CallOpenTransfer>(Do(Tick{})).size(), 1u);
  }
  const auto effects = Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
  EXPECT_EQ(Of<CallPlaceDecode>(effects).at(0).request.why, absl::UnavailableError("lost"));
  EXPECT_EQ(ended_.count({7, 1}), 0u);
}

TEST_F(PrefillCoreTest, AGrantIsTriedAgainAndAMismatchIsNot) {
  Assign(Spec(1));
  Place(1);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
  now_ = 50;
  EXPECT_EQ(Of<CallOpenTransfer>(Do(Tick{})).size(), 1u);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::FailedPreconditionError("dtype")}});
  EXPECT_TRUE(Of<RunStep>(Step()).empty());
  EXPECT_EQ(ended_.at({7, 1}), absl::FailedPreconditionError("dtype"));
}

}  // namespace
}  // namespace skein::scheduler
