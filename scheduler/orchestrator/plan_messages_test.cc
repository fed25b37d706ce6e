// How many messages of the orchestrator and of its instances must follow one another before a
// prompt is computed. Two are a round trip.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class PlanMessagesTest : public PlanningTest {
 protected:
  explicit PlanMessagesTest(const char* policy = "fixed2") : PlanningTest(policy) {
    UpPrefill(2);
    decode_ = Up(Role::kDecode, 2);
  }

  // Messages in a row from the submission until the last member may run, Assign included. Those
  // that travel at the same time count as one. Each is answered at once, as its worker does.
  int UntilAllMayRun(uint64_t serial, int64_t tokens) {
    Effects effects = Submit(serial, tokens);
    assigns_ = Of<CallAssign>(effects);
    int messages = 1;
    while (messages < 10) {
      const bool plain = !assigns_.empty() && assigns_[0].request.members.empty();
      if (plain || Starts(effects, serial) == assigns_.size()) return messages;
      effects = AnswerAll(effects);
      messages += 2;  // the instances' and the orchestrator's
    }
    return messages;
  }
  static size_t Starts(const Effects& effects, uint64_t serial) {
    size_t starts = 0;
    for (const CallStart& start : Of<CallStart>(effects)) {
      starts += start.request.id == RequestId{7, serial} ? 1 : 0;
    }
    return starts;
  }
  Effects AnswerAll(const Effects& effects) {
    Effects next;
    const auto add = [&next](const Effects& more) {
      next.insert(next.end(), more.begin(), more.end());
    };
    for (const CallAssign& assign : older_) add(Answer(assign));
    if (!older_.empty()) add(Opened(decode_, older_[0]));
    older_.clear();
    for (const CallAssign& assign : Of<CallAssign>(effects)) {
      add(Answer(assign));
      const bool leads = assign.instance == assigns_[0].instance;
      if (leads) add(assign.request.placed.has_value() ? Opened(decode_, assign) : Ask(assign));
    }
    for (const AnswerPlaceDecode& answer : Of<AnswerPlaceDecode>(effects)) {
      EXPECT_EQ(answer.reply.placed.decode, decode_);
      add(Opened(decode_, assigns_[0]));
    }
    return next;
  }

  InstanceId decode_;
  std::vector<CallAssign> older_;    // of a plan that opens while the next Assigns are answered
  std::vector<CallAssign> assigns_;  // of the last request
};

class PlainPlanMessagesTest : public PlanMessagesTest {
 protected:
  PlainPlanMessagesTest() : PlanMessagesTest("fixed1") {}
};

// The Assign names the decode instance, so the lead opens the transfer while it computes: its KV
// can move after one round trip with that instance, and none with the orchestrator.
TEST_F(PlainPlanMessagesTest, APlainPromptRunsAfterItsAssignAlone) {
  EXPECT_EQ(UntilAllMayRun(1, 4000), 1);
  ASSERT_EQ(assigns_.size(), 1u);
  ASSERT_TRUE(assigns_[0].request.placed.has_value());
  EXPECT_EQ(assigns_[0].request.placed->decode, decode_);
}

// Assign, its answers with the lead's word that the transfer is open, Start. One round trip would
// do if members ran without a Start. But a member that runs while another lacks the plan waits in
// the ring for that one. If the orchestrator dies, its successor does not know the plan and cancels
// it nowhere, so the wait would last until the step's deadline (PlanSender::MayStart).
TEST_F(PlanMessagesTest, AllMembersOfAnSpPlanMayRunAfterOneAndAHalfRoundTrips) {
  EXPECT_EQ(UntilAllMayRun(1, 4000), 3);
  ASSERT_EQ(assigns_.size(), 2u);
  EXPECT_TRUE(assigns_[0].request.placed.has_value());
}

// Two round trips and a half: the lead asks where its KV goes, and is answered when the older plan
// has opened its transfer. Members run pieces in plan order, so a younger plan that took the last
// decode blocks would wait for the older one, which would wait for blocks (decode_placement.h).
TEST_F(PlanMessagesTest, AnOlderPlanThatOpensMeanwhileCostsOneRoundTripMore) {
  older_ = Of<CallAssign>(Submit(1, 4000));
  ASSERT_EQ(older_.size(), 2u);
  EXPECT_EQ(UntilAllMayRun(2, 4000), 5);
  ASSERT_EQ(assigns_.size(), 2u);
  EXPECT_FALSE(assigns_[0].request.placed.has_value());
}

}  // namespace
}  // namespace skein::scheduler
