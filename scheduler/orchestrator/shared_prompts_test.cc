#include "scheduler/orchestrator/shared_prompts.h"

#include <gtest/gtest.h>

#include <vector>

#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

class SharedPromptsTest : public PartsTest {
 protected:
  // A further choice of the answer whose first one is `first`.
  Request& Add(uint64_t serial, uint64_t first, int64_t prompt_tokens = 4) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    spec->prompt_tokens = prompt_tokens;
    spec->max_tokens = 4;
    spec->prompt_of = RequestId{7, first};
    effects_.clear();
    return requests_.Add(std::move(spec), now_, now_ + 600 * kSecondUs);
  }
  Request& Choice(uint64_t serial, uint64_t first) {
    Request& request = Add(serial, first);
    EXPECT_TRUE(sharing_.Begin(request, now_));
    return request;
  }
  EndedRequest Ended(const Request& request, absl::Status status) {
    return {.id = request.spec->id,
            .epoch = request.epoch,
            .reason = FinishReason::kError,
            .status = std::move(status)};
  }
  void Report(InstanceId from, EndedRequest ended) {
    ReportRequest report;
    report.instance = from;
    report.incarnation = registry_.Find(from)->identity.incarnation;
    report.serial = ++serial_;
    report.ended = {std::move(ended)};
    workers_.On(ReportCalled{registry_.Find(from)->connection, report}, now_);
  }
  uint64_t serial_ = 0;
};

TEST_F(SharedPromptsTest, AChoiceIsAnnouncedWhereTheFirstOneIsAndOpensWithoutAPlan) {
  Join(Role::kPrefill, 1);
  const InstanceId decode = Join(Role::kDecode, 2);
  Request& first = Submit(1);
  Request& choice = Choice(2, 1);
  EXPECT_EQ(choice.state, State::kSharing);
  EXPECT_TRUE(Of<CallAssign>().empty());
  const auto announced = Of<CallAnnounce>();
  ASSERT_EQ(announced.size(), 1u);
  EXPECT_EQ(announced[0].instance, decode);
  EXPECT_EQ(announced[0].request.prompt_of, first.spec->id);
  EXPECT_TRUE(announced[0].request.writers.empty());
  const auto updates = Of<SendPlanUpdate>();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(std::get<Planned>(updates[0].update).decode, decode) << "its router attaches";
  Open(first);
  now_ += 7;
  Open(choice);
  EXPECT_EQ(choice.state, State::kPlaced);
  EXPECT_EQ(choice.explanation.prefilled_us, 7);
  EXPECT_EQ(sharing_.shared(), 1u);
}

TEST_F(SharedPromptsTest, AChoiceWaitsUntilTheFirstOneIsPlaced) {
  Join(Role::kPrefill, 1);
  Request& first = Submit(1);
  Accept(first);
  Request& choice = Choice(2, 1);
  EXPECT_TRUE(Of<CallAnnounce>().empty());
  const InstanceId decode = Join(Role::kDecode, 2);
  Ask(first, 1);
  EXPECT_EQ(Of<CallAnnounce>().size(), 2u);
  EXPECT_EQ(choice.decode, decode);
}

TEST_F(SharedPromptsTest, AChoiceWhoseFirstOneEndsBeforeItIsPlacedIsAnOrphan) {
  Join(Role::kPrefill, 1);
  Request& first = Submit(1);
  Request& choice = Choice(2, 1);
  Fail(first, absl::CancelledError("the client went away"));
  EXPECT_EQ(sharing_.TakeOrphans(), std::vector<RequestId>{choice.spec->id});
  replanner_.GiveUpPlan(choice, absl::UnavailableError("gone"), now_);
  EXPECT_FALSE(choice.shares_prompt);
  EXPECT_EQ(choice.state, State::kAssigning);
  EXPECT_TRUE(sharing_.TakeOrphans().empty());
}

// It may have the blocks already: then it goes on.
TEST_F(SharedPromptsTest, TheDecodeInstanceTellsHowAnAnnouncedChoiceStands) {
  Join(Role::kPrefill, 1);
  const InstanceId decode = Join(Role::kDecode, 2);
  Request& first = Submit(1);
  Request& two = Choice(2, 1);
  Request& three = Choice(3, 1);
  Fail(first, absl::CancelledError("the client went away"));
  EXPECT_TRUE(sharing_.TakeOrphans().empty());
  Open(two);
  EXPECT_EQ(two.state, State::kPlaced);
  const Epoch before = three.epoch;
  Report(decode, Ended(three, absl::UnavailableError("prompt_of: that request has ended")));
  EXPECT_GT(three.epoch, before);
  EXPECT_EQ(three.state, State::kAssigning) << "planned on its own";
}

// The instance that it was announced at may not hear this orchestrator, and so says nothing.
TEST_F(SharedPromptsTest, AChoiceWhoseFirstOneIsPlacedElsewhereIsAnOrphan) {
  Join(Role::kPrefill, 1);
  Join(Role::kDecode, 2);
  Join(Role::kDecode, 3);
  Request& first = Submit(1);
  Accept(first);
  Request& choice = Choice(2, 1);
  const InstanceId left = first.decode;
  EXPECT_EQ(choice.decode, left);
  Ask(first, 1, /*refused_by=*/left, absl::DeadlineExceededError("no reply in time"));
  decode_.PlaceWaiting();
  ASSERT_NE(first.decode, left);
  EXPECT_EQ(sharing_.TakeOrphans(), std::vector<RequestId>{choice.spec->id});
  replanner_.GiveUpPlan(choice, absl::UnavailableError("gone"), now_);
  EXPECT_FALSE(choice.shares_prompt);
  EXPECT_TRUE(sharing_.TakeOrphans().empty());
}

TEST_F(SharedPromptsTest, ALostDecodeInstanceCostsAChoiceItsShareOnly) {
  Join(Role::kPrefill, 1);
  Join(Role::kDecode, 2);
  Submit(1);
  Request& choice = Choice(2, 1);
  const Epoch before = choice.epoch;
  Join(Role::kDecode, 3);
  workers_.On(UnregisterCalled{{9}, {.instance = choice.decode, .incarnation = {2}}}, now_);
  EXPECT_GT(choice.epoch, before);
  EXPECT_FALSE(choice.shares_prompt);
}

TEST_F(SharedPromptsTest, WhatCannotShareIsPlannedAsAnyOther) {
  Join(Role::kPrefill, 1);
  Join(Role::kDecode, 2);
  Submit(1);
  EXPECT_FALSE(sharing_.Begin(Add(2, 99), now_)) << "unknown here";
  EXPECT_FALSE(sharing_.Begin(Add(3, 3), now_)) << "itself";
  EXPECT_FALSE(sharing_.Begin(Add(4, 1, /*prompt_tokens=*/5), now_)) << "another prompt";
  Choice(5, 1);
  EXPECT_FALSE(sharing_.Begin(Add(6, 5), now_)) << "no first choice";
  for (const uint64_t serial : {2, 3, 4, 6}) prefill_.Plan(requests_.At({7, serial}), now_);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
