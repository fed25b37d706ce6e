#include "scheduler/worker/prefill/prefill_transfers.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/prefill_parts.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;
using Phase = PrefillRequest::Phase;
using PrefillTransfersTest = testing::PrefillPartsTest;

constexpr RequestId kOne{7, 1};

TEST_F(PrefillTransfersTest, AnAdmittedRequestAsksOpensAndComputes) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  EXPECT_EQ(Of<CallPlaceDecode>(effects_).size(), 1u);
  EXPECT_EQ(requests_.at(kOne).phase, Phase::kAsking);
  EXPECT_FALSE(PrefillTransfers::HasOpened(requests_.at(kOne)));
  effects_.clear();
  const PrefillRequest& request = Open(1);
  EXPECT_EQ(Of<CallOpenTransfer>(effects_)[0].endpoint, "d:1");
  ASSERT_EQ(Of<OpenHandoff>(effects_).size(), 1u);
  EXPECT_EQ(Of<OpenHandoff>(effects_)[0].blocks.size(), 2u);
  EXPECT_EQ(request.phase, Phase::kComputing);
  EXPECT_TRUE(PrefillTransfers::HasOpened(request));
  EXPECT_TRUE(steps_.Next(requests_, sp_plans_, false, now_).has_value());
}

TEST_F(PrefillTransfersTest, APlaceIsTakenOnce) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  PrefillRequest& request = requests_.at(kOne);
  effects_.clear();
  transfers_.Place(request, {kEpoch, kDecode, "d:1"});
  transfers_.Place(request, {kEpoch, {9}, "d:2"});
  EXPECT_EQ(request.placed.decode, kDecode) << "after a break it is sent again";
  EXPECT_EQ(Of<CallOpenTransfer>(effects_).size(), 1u);
}

TEST_F(PrefillTransfersTest, ARefusedTransferAsksForAnotherPlace) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  PrefillRequest& request = requests_.at(kOne);
  transfers_.Place(request, {kEpoch, kDecode, "d:1"});
  effects_.clear();
  kv_out_.On(OpenTransferReplied{kOne, kEpoch, {absl::ResourceExhaustedError("full")}}, now_);
  transfers_.TakeOutcomes();
  Check();
  EXPECT_FALSE(request.IsPlaced());
  EXPECT_EQ(requests_.blocks().held, 2) << "it keeps its local blocks";
  ASSERT_EQ(Of<CallPlaceDecode>(effects_).size(), 1u);
  EXPECT_EQ(Of<CallPlaceDecode>(effects_)[0].request.refused_by, kDecode);
}

TEST_F(PrefillTransfersTest, AQuestionThatFailsEndsItsRequest) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  transfers_.On(PlaceDecodeReplied{kOne, kEpoch, {absl::FailedPreconditionError("stale")}});
  Check();
  EXPECT_EQ(requests_.Find(kOne), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(Ended().at(1).status));
}

TEST_F(PrefillTransfersTest, WithoutDecodeRoomItAsksOn) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  transfers_.On(PlaceDecodeReplied{kOne, kEpoch, {absl::ResourceExhaustedError("no room")}});
  Check();
  EXPECT_EQ(requests_.at(kOne).phase, Phase::kAsking);
  effects_.clear();
  EXPECT_TRUE(place_calls_.RunTimers(now_ + 50).empty());
  EXPECT_EQ(Of<CallPlaceDecode>(effects_).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
