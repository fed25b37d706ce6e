// A member of a bound group that says nothing, while its stream stands: the group ends for the
// others, and what ran at it goes on at them.
#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/testing/long_testing.h"

namespace skein::scheduler {
namespace {

using Act = orchestrator::FormationOrder::Act;
using Phase = FormationTold::Phase;

constexpr TimeUs kSilentUs = 1500 * kMillisecondUs;
constexpr TimeUs kReportUs = 500 * kMillisecondUs;
constexpr TimeUs kSlackUs = 200 * kMillisecondUs;  // of ticks

class SilentMemberTest : public LongRequestsTest {
 protected:
  // Two decode instances, which are bound together.
  void SetUp() override {
    core_ = std::make_unique<OrchestratorCore>(
        OrchestratorConfig{.generation = 1, .instance_silent_us = kSilentUs});
    RouterConnects(7);
    prefill_ = Up(Role::kPrefill);
    UpGroup(2);
    const Effects asked = Order(Act::kBind, {}, "m@a");
    Complete(asked);
    ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
    epoch_ = Of<CallPrepareFormation>(asked)[0].request.epoch;
  }
  // All but the silent ones report.
  Effects PassUntil(TimeUs end) {
    Effects all;
    const auto append = [&](Effects more) {
      for (OrchestratorEffect& effect : more) all.push_back(std::move(effect));
    };
    while (now_ < end) {
      append(Until(std::min(end, now_ + kReportUs)));
      append(Report(prefill_));
      for (const InstanceId member : members_) {
        if (silent_.count(member) == 0) append(Report(member, held_[member]));
      }
      append(Do(RouterReported{router_stream_, {}}));
    }
    return all;
  }
  void FallsSilent(InstanceId member) {
    Do(OrchestratorTick{});
    for (const InstanceId each : members_) Report(each, held_[each]);
    silent_.insert(member);
    since_us_ = now_;
  }
  // Its answer streams from the lead.
  void Stream(uint64_t serial) {
    const CallAssign assign = Of<CallAssign>(Submit(serial, 10)).at(0);
    const RequestId id = {7, serial};
    const Epoch epoch = assign.request.epoch;
    Do(AssignReplied{assign.instance, id, epoch, {}, assign.request.sequence});
    ASSERT_EQ(assign.request.placed->decode, members_[0]);
    Do(TransferOpened{members_[0], id, epoch});
    held_[members_[0]].push_back({.id = id, .epoch = epoch, .opened = true});
    Report(prefill_, {}, {{.id = id, .epoch = epoch, .status = {}}});
    Report(members_[0], held_[members_[0]]);
  }

  uint64_t epoch_ = 0;
  std::set<InstanceId> silent_;
  TimeUs since_us_ = 0;
};

TEST_F(SilentMemberTest, ABoundGroupEndsForAllLongBeforeItsLease) {
  FallsSilent(members_[1]);
  EXPECT_TRUE(Of<CallEndFormation>(PassUntil(since_us_ + kSilentUs - kSlackUs)).empty());
  const auto ends = Of<CallEndFormation>(PassUntil(since_us_ + kSilentUs + kSlackUs));
  ASSERT_EQ(ends.size(), 2u);
  for (const CallEndFormation& one : ends) {
    EXPECT_EQ(one.request.epoch, epoch_);
    EXPECT_EQ(one.request.how, Switch::kHard);
  }
  EXPECT_EQ(core_->Totals().instances_lost, 0u);
}

// The other one takes requests when it has left the group, whether the lead answers or not.
TEST_F(SilentMemberTest, WhatStreamsFromASilentLeadGoesOnAtTheOthers) {
  Stream(1);
  FallsSilent(members_[0]);
  const Effects effects = PassUntil(since_us_ + kSilentUs + kSlackUs);
  EXPECT_EQ(Updates<Failed>(effects).size(), 1u) << "its router tries it again";
  EXPECT_EQ(Of<CallEndFormation>(effects).size(), 2u);
  Tell(members_[1], epoch_, Phase::kEnded);
  const auto assigned = Of<CallAssign>(Submit(2, 10));
  ASSERT_EQ(assigned.size(), 1u);
  EXPECT_EQ(assigned[0].request.placed->decode, members_[1]);
  EXPECT_EQ(core_->Totals().instances_lost, 0u);
}

TEST_F(SilentMemberTest, WhereAllAreSilentForAsLongTheGroupGoesOn) {
  FallsSilent(members_[0]);
  silent_.insert(members_[1]);
  EXPECT_TRUE(Of<CallEndFormation>(PassUntil(since_us_ + 2 * kSecondUs)).empty());
}

}  // namespace
}  // namespace skein::scheduler
