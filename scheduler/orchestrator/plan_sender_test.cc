#include "scheduler/orchestrator/plan_sender.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace skein::scheduler::orchestrator {
namespace {

class PlanSenderTest : public ::testing::Test {
 protected:
  PlanSenderTest() {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, 1};
    spec->model = "m";
    spec->prompt_tokens = 8;
    request_.spec = spec;
    request_.epoch = {5};
  }
  InstanceId Up(Role role, uint64_t incarnation) {
    WorkerIdentity identity;
    identity.role = role;
    identity.model = "m";
    identity.endpoint = "w:" + std::to_string(incarnation);
    identity.incarnation = {incarnation};
    identity.shape = {{.num_layers = 1, .block_tokens = 4, .dtype = DType::kF32}, "h"};
    identity.total_blocks = 100;
    return registry_.Register({identity}, {incarnation}, 0)->id;
  }
  // On two instances, as two chunks; the second member joins with the second chunk.
  void PlanOnTwo() {
    request_.sequence_parallel = true;
    request_.members = {{.instance = first_}, {.instance = second_}};
    request_.chunks = {{.tokens = 4, .members = 1}, {.history = 4, .tokens = 4, .members = 2}};
  }
  template <class T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (const OrchestratorEffect& effect : effects_) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    effects_.clear();
    return found;
  }

  Registry registry_{1, 3 * kSecondUs};
  std::vector<OrchestratorEffect> effects_;
  PlanSender sender_{&registry_, &effects_};
  const InstanceId first_ = Up(Role::kPrefill, 11);
  const InstanceId second_ = Up(Role::kPrefill, 12);
  const InstanceId decode_ = Up(Role::kDecode, 13);
  Request request_;
};

TEST_F(PlanSenderTest, APlainPlanGoesToItsInstanceWithItsPlace) {
  request_.members = {{.instance = first_}};
  request_.chunks = {{.tokens = 8, .members = 1}};
  request_.decode = decode_;
  sender_.Assign(request_, 0, {3});
  const auto assigns = Take<CallAssign>();
  ASSERT_EQ(assigns.size(), 1u);
  EXPECT_EQ(assigns[0].instance, first_);
  EXPECT_EQ(assigns[0].request.epoch, Epoch{5});
  EXPECT_EQ(assigns[0].request.sequence, PlanSequence{3});
  EXPECT_EQ(assigns[0].request.placed->endpoint, "w:13");
  EXPECT_FALSE(assigns[0].request.suspect);
  EXPECT_TRUE(assigns[0].request.chunks.empty());
  EXPECT_EQ(registry_.Find(first_)->placed.count({7, 1}), 1u);
  request_.failures.Fail({102}, second_);
  sender_.Assign(request_, 0, {4});
  EXPECT_TRUE(Take<CallAssign>().at(0).request.suspect);
}

TEST_F(PlanSenderTest, AnSpPlanGoesToEachMemberAndItsPlaceToTheLead) {
  PlanOnTwo();
  request_.decode = decode_;
  sender_.Assign(request_, 0, {3});
  auto assigns = Take<CallAssign>();
  ASSERT_EQ(assigns.size(), 2u);
  for (const CallAssign& assign : assigns) {
    EXPECT_EQ(assign.request.spec, request_.spec) << "the same bytes, not a copy";
  }
  EXPECT_EQ(assigns[1].request.members.at(0).endpoint, "w:11");
  EXPECT_EQ(assigns[1].request.chunks.at(0).members, (std::vector<uint32_t>{0}));
  EXPECT_EQ(assigns[1].request.chunks.at(1).members, (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(assigns[0].request.placed.has_value());
  EXPECT_FALSE(assigns[1].request.placed.has_value());
  sender_.Assign(request_, 1, {4});  // one more chunk: nobody joins
  assigns = Take<CallAssign>();
  EXPECT_EQ(assigns.at(0).request.from_chunk, 1u);
  EXPECT_FALSE(assigns.at(0).request.placed.has_value());
}

TEST_F(PlanSenderTest, StartGoesToAllMembersThatAreHereOnceEachHasThePlan) {
  PlanOnTwo();
  request_.decode = decode_;
  request_.state = State::kPlaced;
  request_.members[0].phase = Member::Phase::kAccepted;
  sender_.StartMembers(request_);
  EXPECT_TRUE(effects_.empty());
  request_.members[1].phase = Member::Phase::kAccepted;
  sender_.StartMembers(request_);
  const auto starts = Take<CallStart>();
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[1].instance, second_);
  request_.members[1].phase = Member::Phase::kGone;
  sender_.StartMembers(request_);
  EXPECT_EQ(Take<CallStart>().at(0).instance, first_);
  EXPECT_TRUE(effects_.empty());
}

TEST_F(PlanSenderTest, APlaceNamesTheProcessThatMayWriteThere) {
  PlanOnTwo();
  request_.decode = decode_;
  request_.state = State::kPlaced;
  sender_.Assign(request_, 0, {3});
  const auto assigns = Take<CallAssign>();
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_EQ(assigns[0].request.placed->writer, Incarnation{11});
  EXPECT_EQ(assigns[1].request.placed->writer, Incarnation{12});
  for (Member& member : request_.members) member.phase = Member::Phase::kAccepted;
  sender_.StartMembers(request_);
  EXPECT_EQ(Take<CallStart>().at(1).request.placed.writer, Incarnation{12});
}

TEST_F(PlanSenderTest, WritersOfOlderBuildsAreExcusedFromShowingPermits) {
  PlanOnTwo();
  request_.decode = decode_;
  registry_.Find(second_)->identity.build.protocol.newest = 2;
  sender_.Announce(request_);
  EXPECT_EQ(Take<CallAnnounce>().at(0).request.excused, (std::vector<Incarnation>{{11}}));
}

TEST_F(PlanSenderTest, TheDecodeInstanceHearsOfAllWritersThatAreHere) {
  PlanOnTwo();
  request_.decode = decode_;
  sender_.Announce(request_);
  auto announces = Take<CallAnnounce>();
  ASSERT_EQ(announces.size(), 1u);
  EXPECT_EQ(announces[0].instance, decode_);
  EXPECT_EQ(announces[0].request.writers, (std::vector<Incarnation>{{11}, {12}}));
  registry_.Remove(first_);
  sender_.Announce(request_);
  EXPECT_EQ(Take<CallAnnounce>().at(0).request.writers, (std::vector<Incarnation>{{12}}));
  sender_.Withdraw(request_);
  EXPECT_EQ(Take<CallWithdraw>().at(0).instance, decode_);
}

TEST_F(PlanSenderTest, WhatGoesToAnInstanceWithoutAStreamIsDropped) {
  PlanOnTwo();
  registry_.Disconnect(*registry_.Find(first_));
  sender_.CancelAtMembers(request_, "replanned");
  auto cancels = Take<CallCancel>();
  ASSERT_EQ(cancels.size(), 1u);
  EXPECT_EQ(cancels[0].instance, second_);
  EXPECT_EQ(cancels[0].request.epoch, Epoch{5});
  registry_.Remove(second_);
  sender_.CancelAtMembers(request_, "replanned");
  EXPECT_TRUE(effects_.empty());
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
