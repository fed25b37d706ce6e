#include "scheduler/worker/prefill/prefill_transfers.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/prefill_parts.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;
using Phase = PrefillRequest::Phase;
using Standing = PrefillRequest::Standing;
using PrefillTransfersTest = testing::PrefillPartsTest;

constexpr RequestId kOne{7, 1};

TEST_F(PrefillTransfersTest, AnAdmittedRequestComputesAsksAndOpens) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  EXPECT_EQ(Of<CallPlaceDecode>(effects_).size(), 1u);
  ASSERT_EQ(Of<OpenHandoff>(effects_).size(), 1u);
  EXPECT_EQ(Of<OpenHandoff>(effects_)[0].blocks.size(), 2u);
  EXPECT_EQ(requests_.at(kOne).standing(), Standing::kComputingAhead);
  EXPECT_FALSE(PrefillTransfers::HasOpened(requests_.at(kOne)));
  EXPECT_TRUE(steps_.Next(requests_, sp_plans_, false, now_).has_value());
  effects_.clear();
  const PrefillRequest& request = Open(1);
  EXPECT_EQ(Of<CallOpenTransfer>(effects_)[0].endpoint, "d:1");
  EXPECT_EQ(Of<StartHandoff>(effects_).size(), 1u);
  EXPECT_EQ(request.standing(), Standing::kComputing);
  EXPECT_TRUE(PrefillTransfers::HasOpened(request));
}

TEST_F(PrefillTransfersTest, AResultWaitsForTheGrant) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  PrefillRequest& request = requests_.at(kOne);
  transfers_.Place(request, {kEpoch, kDecode, "d:1"});
  request.started_us = 0;
  request.result.token = 40;
  now_ = 70;
  transfers_.Computed(request);
  Check();
  EXPECT_EQ(request.standing(), Standing::kComputed);
  EXPECT_FALSE(PrefillTransfers::HasOpened(request));
  effects_.clear();
  now_ = 80;
  Open(1);
  EXPECT_EQ(Of<StartHandoff>(effects_).size(), 1u);
  EXPECT_EQ(request.standing(), Standing::kCommitting);
  now_ = 90;
  kv_out_.On(HandoffDone{kOne, kEpoch, {256, 256}}, now_);
  const CommitRequest commit = Of<CallCommit>(effects_).at(0).request;
  EXPECT_EQ(commit.token, 40);
  EXPECT_EQ(commit.times, (PrefillTimes{0, 70, 20}));
}

TEST_F(PrefillTransfersTest, AYieldedRequestStartsFromNothing) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  PrefillRequest& request = requests_.at(kOne);
  request.started_us = 0;
  request.result.has_token = true;
  effects_.clear();
  transfers_.Yield(request);
  Check();
  EXPECT_EQ(request.phase, Phase::kQueued);
  EXPECT_EQ(requests_.blocks().held, 0);
  EXPECT_FALSE(request.result.has_token);
  EXPECT_EQ(Of<ReleaseSequence>(effects_).size(), 1u);
  EXPECT_FALSE(steps_.Next(requests_, sp_plans_, false, now_).has_value());
  transfers_.AdmitQueued();
  Check();
  EXPECT_EQ(Of<OpenHandoff>(effects_).size(), 1u) << "the sender hears of its new blocks";
  EXPECT_TRUE(steps_.Next(requests_, sp_plans_, false, now_).has_value());
}

TEST_F(PrefillTransfersTest, Invariant6APlainRequestIsInTheBatchAndHasATransferAsItsStateSays) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  PrefillRequest& request = requests_.at(kOne);
  requests_.SetPlaced(request, {kEpoch, kDecode, "d:1"});
  EXPECT_FALSE(transfers_.CheckInvariants().ok()) << "it is last in the batch";
  steps_.Rank(request);
  EXPECT_FALSE(transfers_.CheckInvariants().ok()) << "it has no transfer";
  requests_.ClearPlaced(request);
  steps_.Rank(request);
  EXPECT_TRUE(transfers_.CheckInvariants().ok()) << transfers_.CheckInvariants();
  steps_.Remove(kOne);
  EXPECT_FALSE(transfers_.CheckInvariants().ok()) << "it computes";
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
  EXPECT_EQ(request.standing(), Standing::kComputingAhead);
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
  EXPECT_EQ(requests_.at(kOne).phase, Phase::kComputing) << "no SP plan waits for its blocks";
  effects_.clear();
  EXPECT_TRUE(place_calls_.RunTimers(now_ + 50).empty());
  EXPECT_EQ(Of<CallPlaceDecode>(effects_).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
