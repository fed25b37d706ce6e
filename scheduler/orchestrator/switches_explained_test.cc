// What explanations tell of the switches of formations while a request is decoded.
#include <string>
#include <vector>

#include "scheduler/orchestrator/testing/long_testing.h"

namespace skein::scheduler {
namespace {

using Act = orchestrator::FormationOrder::Act;
using Phase = FormationTold::Phase;
using Names = std::vector<std::string>;

class SwitchesExplainedTest : public LongRequestsTest {
 protected:
  // A short request is submitted, and its decode instance has taken its blocks.
  CallAssign Place(uint64_t serial) {
    CallAssign assign = Of<CallAssign>(Submit(serial, 10)).at(0);
    const RequestId id = {7, serial};
    Do(AssignReplied{assign.instance, id, assign.request.epoch, {}, assign.request.sequence});
    const InstanceId decode = assign.request.placed->decode;
    Do(TransferOpened{decode, id, assign.request.epoch});
    held_[decode].push_back({.id = id, .epoch = assign.request.epoch, .opened = true});
    return assign;
  }
  void Close(uint64_t serial) {
    Do(Closed({7, serial}));
    for (auto& [instance, held] : held_) {
      std::erase_if(held, [&](const HeldRequest& one) { return one.id == RequestId{7, serial}; });
    }
  }
  uint64_t BindAll() {
    const Effects asked = Order(Act::kBind, {}, "m@a");
    Complete(asked);
    return Of<CallPrepareFormation>(asked).at(0).request.epoch;
  }
  void EndAll(uint64_t epoch) {
    for (const InstanceId member : members_) Tell(member, epoch, Phase::kEnded);
  }
  PlanExplanation PlanOf(uint64_t serial, size_t plan = 0) {
    return core_->Explain(ToString(RequestId{7, serial}), now_).at(0).plans.at(plan);
  }
  // "1 to 4 done alone, operator", for each switch that is told of the request.
  Names Switches(uint64_t serial, size_t plan = 0) {
    const std::vector<SwitchExplanation> switches = PlanOf(serial, plan).switches;
    Names names;
    names.reserve(switches.size());
    for (const SwitchExplanation& one : switches) {
      names.push_back(std::to_string(one.from) + " to " + std::to_string(one.to) + " " +
                      (one.ended_us.has_value() ? std::string(NameOf(one.outcome)) : "goes on") +
                      " " + NameOf(one.meaning) + ", " + NameOf(one.cause));
    }
    return names;
  }
};

TEST_F(SwitchesExplainedTest, ABindIsToldFromItsBeginOn) {
  UpGroup();
  Place(1);
  Place(2);
  Close(2);
  const Effects asked = Order(Act::kBind, {}, "m@a");
  EXPECT_EQ(Switches(1), (Names{"1 to 4 goes on alone, operator"}));
  EXPECT_TRUE(Switches(2).empty()) << "it ended before";
  Order(Act::kRelease, {}, "m@a");  // so the bind is aborted
  EXPECT_EQ(Switches(1), (Names{"1 to 4 goes on alone, operator"}));
  EndAll(Of<CallPrepareFormation>(asked).at(0).request.epoch);
  EXPECT_EQ(Switches(1), (Names{"1 to 4 aborted alone, operator"}));
  EXPECT_EQ(PlanOf(1).switches[0].reason, "ordered by an operator");
  EXPECT_TRUE(Switches(2).empty());
}

TEST_F(SwitchesExplainedTest, ARequestThatRunsDuringABindAndAReleaseShowsBoth) {
  UpGroup();
  Place(1);
  now_ += kSecondUs;
  const TimeUs decided_us = PlanOf(1).decided_us;
  const uint64_t epoch = BindAll();
  now_ += kSecondUs;
  Order(Act::kRelease, {}, "m@a");
  EXPECT_EQ(Switches(1), (Names{"1 to 4 done alone, operator", "4 to 1 goes on alone, operator"}));
  now_ += kSecondUs;
  EndAll(epoch);
  const Names both = {"1 to 4 done alone, operator", "4 to 1 done alone, operator"};
  EXPECT_EQ(Switches(1), both);
  const std::vector<SwitchExplanation> told = PlanOf(1).switches;
  EXPECT_EQ(told[0].epoch, epoch);
  EXPECT_EQ(told[0].began_us, kSecondUs - decided_us);
  EXPECT_EQ(told[1].began_us, 2 * kSecondUs - decided_us);
  EXPECT_EQ(told[1].ended_us, 3 * kSecondUs - decided_us);
  EXPECT_EQ(told[1].why, "ordered by an operator");
  Close(1);
  EXPECT_EQ(Switches(1), both);
  EndAll(BindAll());
  EXPECT_EQ(Switches(1), both) << "it has ended";
  Place(3);
  EXPECT_TRUE(Switches(3).empty()) << "it came after them";
}

// A release that lets requests end first ends after them.
TEST_F(SwitchesExplainedTest, ARequestOfTheGroupIsToldOfItsRelease) {
  UpGroup();
  const uint64_t epoch = BindAll();
  Place(1);
  EXPECT_EQ(PlanOf(1).formation_epoch, epoch);
  EXPECT_TRUE(Switches(1).empty()) << "the bind was before it";
  Order(Act::kRelease, {}, "m@a");
  Place(2);  // alone, at any of them
  Close(1);
  EXPECT_EQ(Switches(1), (Names{"4 to 1 goes on in_group, operator"}));
  EXPECT_EQ(Switches(2), (Names{"4 to 1 goes on alone, operator"}));
  EndAll(epoch);
  EXPECT_EQ(Switches(1), (Names{"4 to 1 goes on in_group, operator"})) << "it ended before";
  EXPECT_EQ(Switches(2), (Names{"4 to 1 done alone, operator"}));
}

TEST_F(SwitchesExplainedTest, AGroupThatFailsGivesItsRequestsBackOrLosesThem) {
  UpGroup();
  const uint64_t epoch = BindAll();
  const CallAssign assign = Place(1);
  const InstanceId lead = assign.request.placed->decode;
  EXPECT_EQ(lead, members_[0]);
  Tell(members_[1], epoch, Phase::kEnded, absl::InternalError("a step failed"));
  EXPECT_EQ(Switches(1), (Names{"4 to 1 goes on taken_back, failure"}));
  EXPECT_NE(PlanOf(1).switches[0].why.find("a step failed"), std::string::npos);
  EndAll(epoch);
  EXPECT_EQ(Switches(1), (Names{"4 to 1 failed taken_back, failure"}));
}

TEST_F(SwitchesExplainedTest, ARequestWhoseInstanceLeavesIsLostWithIt) {
  UpGroup();
  BindAll();
  Place(1);
  Leave(members_[0]);
  EXPECT_EQ(Switches(1), (Names{"4 to 1 goes on lost, failure"}));
  EXPECT_NE(PlanOf(1).lost, "");
}

TEST_F(SwitchesExplainedTest, TheCauseOfALongRequestIsItsContext) {
  UpGroup(2);
  Place(2);
  Submit(1, 70);
  const Effects asked = ReportAll();
  EXPECT_EQ(Switches(2), (Names{"1 to 2 goes on alone, context"}));
  const CallAnnounce announced = Of<CallAnnounce>(Complete(asked)).at(0);
  Runs(announced);
  EXPECT_EQ(Switches(2), (Names{"1 to 2 done alone, context"}));
  std::vector<HeldRequest>& held = held_[announced.instance];
  held.pop_back();
  Report(announced.instance, held,
         {{announced.request.spec->id, announced.request.epoch, FinishReason::kStop, {}}});
  Effects released;
  for (int i = 0; i < 12 && Of<CallEndFormation>(released).empty(); ++i) released = ReportAll();
  EXPECT_EQ(Switches(2).back(), "2 to 1 goes on alone, context") << "that request is over";
}

TEST_F(SwitchesExplainedTest, TheLatestAreToldAndTheOthersCounted) {
  UpGroup();
  Place(1);
  for (int i = 0; i < 7; ++i) {
    const uint64_t epoch = BindAll();
    Order(Act::kRelease, {}, "m@a");
    EndAll(epoch);
  }
  EXPECT_EQ(PlanOf(1).switches.size(), 8u);
  EXPECT_EQ(PlanOf(1).switches_left_out, 6u);
}

}  // namespace
}  // namespace skein::scheduler
