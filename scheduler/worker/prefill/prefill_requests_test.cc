#include "scheduler/worker/prefill/prefill_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using Kind = PrefillRequest::Kind;
using Phase = PrefillRequest::Phase;
using Standing = PrefillRequest::Standing;

RequestId Id(uint64_t serial) { return {7, serial}; }

class PrefillRequestsTest : public ::testing::Test {
 protected:
  PrefillRequest& Add(uint64_t serial, uint64_t sequence, int64_t blocks, Kind kind = Kind::kPlain,
                      const std::string& tenant = "") {
    const std::shared_ptr<RequestSpec> spec = testing::Spec(serial);
    spec->tenant = tenant;
    return requests_.Add({.spec = spec,
                          .epoch = {5},
                          .sequence = {sequence},
                          .kind = kind,
                          .deadline_us = 1000,
                          .blocks_wanted = blocks});
  }
  // The serials of those that are admitted now, in order.
  std::vector<uint64_t> Admitted() {
    std::vector<uint64_t> admitted;
    while (const PrefillRequest* request = requests_.Admit(&gave_back_)) {
      admitted.push_back(request->id().serial);
    }
    EXPECT_TRUE(requests_.CheckInvariants().ok()) << requests_.CheckInvariants();
    return admitted;
  }

  std::vector<RequestId> gave_back_;
  PrefillRequests requests_{
      /*total_blocks=*/10, /*ahead=*/2, {.max_batch_tokens = 4, .max_batch_sequences = 2}};
};

using Serials = std::vector<uint64_t>;

TEST_F(PrefillRequestsTest, Invariant3BlocksAreGivenInPlanOrderAndNoneOvertakes) {
  Add(1, 30, 1);
  Add(2, 10, 6);
  Add(3, 20, 6);
  EXPECT_EQ(Admitted(), Serials{2});
  EXPECT_EQ(requests_.blocks().held, 6);
  requests_.Erase(Id(2));
  EXPECT_EQ(Admitted(), (Serials{3, 1}));
}

TEST_F(PrefillRequestsTest, ATenantIsChargedOnceForARequestThatGivesItsBlocksBack) {
  for (const uint64_t serial : {1, 2}) Add(serial, serial, 8, Kind::kPlain, "a");
  for (const uint64_t serial : {3, 4}) Add(serial, serial, 8, Kind::kPlain, "b");
  EXPECT_EQ(Admitted(), Serials{1});
  requests_.BackToQueue(requests_.at(Id(1)));
  EXPECT_EQ(Admitted(), Serials{3}) << "the other tenant was given less";
  requests_.Erase(Id(3));
  EXPECT_EQ(Admitted(), Serials{1});
  requests_.Erase(Id(1));
  EXPECT_EQ(Admitted(), Serials{2}) << "both were given one";
}

TEST_F(PrefillRequestsTest, WhatIsComputedOfAnSpPlanIsChargedWhenItIs) {
  Add(1, 1, 10);
  EXPECT_EQ(Admitted(), Serials{1});
  PrefillRequest& member = Add(2, 2, 0, Kind::kMember, "a");
  Add(3, 3, 10, Kind::kPlain, "a");
  Add(4, 4, 10, Kind::kPlain, "b");
  EXPECT_EQ(Admitted(), Serials{2});
  requests_.ChargePiece(member, 5);
  requests_.Erase(Id(1));
  EXPECT_EQ(Admitted(), Serials{4});
}

TEST_F(PrefillRequestsTest, CountsFollowEachChange) {
  Add(1, 10, 4);
  Add(2, 20, 4, Kind::kLead);
  EXPECT_EQ(requests_.CountRequests().queued(), 2);
  EXPECT_EQ(requests_.CountRequests().plain_tokens, 6);  // of the plain one
  EXPECT_EQ(Admitted(), (Serials{1, 2}));
  EXPECT_EQ(requests_.CountRequests()[Standing::kComputingAhead], 1);
  EXPECT_EQ(requests_.CountRequests()[Standing::kAsking], 1);
  EXPECT_EQ(requests_.CountRequests().plain_tokens, 0);
  requests_.BackToQueue(requests_.at(Id(2)));
  EXPECT_EQ(requests_.CountRequests().queued(), 1);
  EXPECT_EQ(requests_.CountRequests().computing(), 1);
  requests_.SetPhase(requests_.at(Id(1)), Phase::kComputed);
  EXPECT_EQ(requests_.CountRequests().asking(), 1) << "computed, for decode blocks";
  requests_.SetOpened(requests_.at(Id(1)));
  EXPECT_EQ(requests_.CountRequests().committing(), 1);
  EXPECT_TRUE(requests_.CheckInvariants().ok()) << requests_.CheckInvariants();
  for (const uint64_t serial : {1, 2}) requests_.Erase(Id(serial));
  EXPECT_EQ(requests_.CountRequests(), PrefillRequests::Count());
  EXPECT_TRUE(requests_.CheckInvariants().ok()) << requests_.CheckInvariants();
}

TEST_F(PrefillRequestsTest, OnlySoManyAreInFrontAndMembersNeverAre) {
  for (const uint64_t serial : {1, 2, 3}) Add(serial, serial, 1);
  Add(4, 4, 1, Kind::kMember);
  EXPECT_EQ(Admitted(), (Serials{1, 2}));
  requests_.SetPhase(requests_.at(Id(1)), Phase::kComputed);
  EXPECT_TRUE(Admitted().empty()) << "it waits for decode blocks";
  requests_.SetOpened(requests_.at(Id(1)));
  EXPECT_EQ(Admitted(), (Serials{3, 4}));
  requests_.SetOpened(requests_.at(Id(2)));
  EXPECT_EQ(requests_.NameOf(Id(2)), "computing");
  Add(5, 5, 1);
  EXPECT_TRUE(Admitted().empty()) << "it computes";
}

TEST_F(PrefillRequestsTest, AnOlderOneTakesTheBlocksOfAYoungerPlanWithoutAPlace) {
  Add(1, 20, 8, Kind::kLead);
  EXPECT_EQ(Admitted(), Serials{1});
  Add(2, 10, 8);
  EXPECT_EQ(Admitted(), Serials{2});
  EXPECT_EQ(gave_back_, std::vector<RequestId>{Id(1)});
  EXPECT_EQ(requests_.at(Id(1)).phase, Phase::kQueued);
}

TEST_F(PrefillRequestsTest, AnOlderOneTakesTheRoomInFrontOfAYoungerPlanWithoutAPlace) {
  Add(1, 20, 1, Kind::kLead);
  Add(2, 30, 1, Kind::kLead);
  EXPECT_EQ(Admitted(), (Serials{1, 2}));
  Add(3, 10, 1);
  EXPECT_EQ(Admitted(), Serials{3});
  EXPECT_EQ(gave_back_, std::vector<RequestId>{Id(2)});
  Add(4, 40, 1);
  EXPECT_TRUE(Admitted().empty()) << "it is the youngest";
}

// The plan waits for the older prompt of a tenant that was given more, which waits behind the
// prompt of another one, which has no room beside the plan.
TEST_F(PrefillRequestsTest,
       AnOlderOneTakesTheBlocksOfAPlanThatWaitsForItThoughAnotherTenantIsNext) {
  Add(1, 5, 1, Kind::kPlain, "much");
  EXPECT_EQ(Admitted(), Serials{1});
  Add(2, 10, 8, Kind::kPlain, "much");
  Add(3, 20, 8, Kind::kLead);
  Add(4, 30, 8, Kind::kPlain, "less");
  EXPECT_EQ(Admitted(), (Serials{3, 2}));
  EXPECT_EQ(gave_back_, std::vector<RequestId>{Id(3)});
  EXPECT_EQ(requests_.at(Id(3)).phase, Phase::kQueued);
  requests_.SetPhase(requests_.at(Id(2)), Phase::kComputed);
  requests_.SetOpened(requests_.at(Id(2)));
  requests_.Erase(Id(2));
  EXPECT_EQ(Admitted(), Serials{3}) << "it waits for none any more";
}

TEST_F(PrefillRequestsTest, APlanWithAPlaceKeepsItsBlocks) {
  requests_.SetPlaced(Add(1, 20, 8, Kind::kLead), {{5}, {4}, "d:1"});
  EXPECT_EQ(Admitted(), Serials{1});
  Add(2, 10, 8);
  EXPECT_TRUE(Admitted().empty());
  requests_.ClearPlaced(requests_.at(Id(1)));
  EXPECT_EQ(Admitted(), Serials{2});
}

TEST_F(PrefillRequestsTest, WhoGivesItsBlocksBackIsQueuedAgain) {
  Add(1, 20, 10);
  Admitted();
  Add(2, 10, 5, Kind::kMember);
  EXPECT_TRUE(Admitted().empty());
  EXPECT_TRUE(requests_.SpPlanWaitsBefore({20}));
  EXPECT_FALSE(requests_.SpPlanWaitsBefore({5}));
  requests_.BackToQueue(requests_.at(Id(1)));
  EXPECT_EQ(Admitted(), Serials{2});
  EXPECT_EQ(requests_.CountRequests().queued(), 1);
}

TEST_F(PrefillRequestsTest, LaterChunksAddBlocksBehindThoseItHas) {
  PrefillRequest& request = Add(1, 10, 3, Kind::kLead);
  Admitted();
  const std::vector<BlockId> before = *request.blocks;
  EXPECT_TRUE(requests_.Extend(request, 2)) << "it has them";
  EXPECT_TRUE(requests_.Extend(request, 7));
  ASSERT_EQ(request.blocks->size(), 7u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), request.blocks->begin()));
  EXPECT_FALSE(requests_.Extend(request, 11));
  EXPECT_TRUE(requests_.CheckInvariants().ok());
}

TEST_F(PrefillRequestsTest, WhoJoinsIsOverdueOnlyWhileItWaitsForBlocks) {
  Add(1, 10, 10);
  Admitted();
  for (const uint64_t serial : {2, 3}) {
    PrefillRequest join{.spec = testing::Spec(serial),
                        .epoch = {5},
                        .sequence = {20 + serial},
                        .kind = Kind::kMember,
                        .deadline_us = 1000,
                        .join_until_us = 100,
                        .blocks_wanted = serial == 2 ? 0 : 1};
    requests_.Add(std::move(join));
  }
  EXPECT_EQ(Admitted(), Serials{2}) << "it gets no block";
  EXPECT_EQ(requests_.NextDeadline(), 100);
  EXPECT_EQ(requests_.TakeOverdue(99), std::nullopt);
  EXPECT_EQ(requests_.TakeOverdue(100), Id(3));
  EXPECT_EQ(requests_.NextDeadline(), 1000);
  requests_.SetPhase(requests_.at(Id(1)), Phase::kEnding);
  EXPECT_EQ(requests_.TakeOverdue(1000), Id(2));
  EXPECT_EQ(requests_.TakeOverdue(1000), std::nullopt) << "the first is ending";
}

TEST_F(PrefillRequestsTest, FindsWhatLivesUnderItsEpoch) {
  Add(1, 10, 1);
  EXPECT_NE(requests_.FindLive(Id(1), {5}), nullptr);
  EXPECT_EQ(requests_.FindLive(Id(1), {6}), nullptr);
  EXPECT_EQ(requests_.NameOf(Id(1)), "queued");
  Admitted();
  EXPECT_EQ(requests_.NameOf(Id(1)), "computing-ahead");
  requests_.SetPhase(requests_.at(Id(1)), Phase::kYielding);
  EXPECT_EQ(requests_.NameOf(Id(1)), "yielding");
  requests_.SetPhase(requests_.at(Id(1)), Phase::kEnding);
  EXPECT_EQ(requests_.FindLive(Id(1), {5}), nullptr);
  EXPECT_NE(requests_.Find(Id(1)), nullptr);
  EXPECT_EQ(requests_.NameOf(Id(1)), "ending");
  EXPECT_EQ(requests_.NameOf(Id(2)), "");
}

}  // namespace
}  // namespace skein::scheduler
