// OrchestratorCore and instances that are slow beside their peers, or whose step does not end.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

class SlowTest : public OrchestratorCoreTest {
 protected:
  struct Told {
    uint64_t incarnation = 0;
    Role role = Role::kDecode;
    TimeUs step_us = 100 * kMillisecondUs;
    int64_t steps = 0;
    TimeUs step_age_us = 0;
    TimeUs step_estimate_us = 10 * kMillisecondUs;
    int64_t free_blocks = 10;
    std::vector<HeldRequest> held = {};
  };

  std::vector<InstanceId> UpMany(Role role, int count) {
    std::vector<InstanceId> ids;
    for (int i = 0; i < count; ++i) {
      const uint64_t incarnation = ++last_incarnation_;
      ids.push_back(Up(role, incarnation));
      told_[ids.back()] = {.incarnation = incarnation, .role = role};
    }
    return ids;
  }
  Effects Report(InstanceId id) {
    const Told& told = told_.at(id);
    WorkerLoad load;
    load.free_blocks = told.free_blocks;
    load.total_blocks = 10;
    load.held_blocks = 5;
    load.running_requests = 1;
    load.mean_step_us = told.step_us;
    load.tokens_per_second = kSecondUs / static_cast<double>(told.step_us);
    load.steps = told.steps;
    load.step_age_us = told.step_age_us;
    load.step_estimate_us = told.step_estimate_us;
    return Do(ReportCalled{Call(),
                           {.instance = id,
                            .incarnation = {told.incarnation},
                            .serial = ++serial_,
                            .load = load,
                            .held = told.held,
                            .full = true,
                            .held_digest = DigestOf(told.held)}});
  }
  // All report once a second, ten steps each time.
  Effects Pass(int seconds) {
    Effects all;
    for (int i = 0; i < seconds; ++i) {
      for (auto& [id, told] : told_) {
        told.steps += 10;
        for (OrchestratorEffect& effect : Report(id)) all.push_back(std::move(effect));
      }
      for (OrchestratorEffect& effect : Until(now_ + kSecondUs)) all.push_back(std::move(effect));
    }
    return all;
  }
  // A request that streams from this instance.
  CallAssign StreamAt(InstanceId decode, uint64_t serial) {
    for (auto& [id, told] : told_) {
      if (told.role == Role::kDecode) told.free_blocks = id == decode ? 10 : 1;
      Report(id);
    }
    const CallAssign assign = Place(serial);
    EXPECT_EQ(assign.request.placed->decode, decode);
    const EndedRequest committed{.id = {7, serial}, .epoch = assign.request.epoch, .status = {}};
    OrchestratorCoreTest::Report(assign.instance, told_.at(assign.instance).incarnation, {},
                                 {committed});
    told_.at(decode).held.push_back(
        {.id = {7, serial}, .epoch = assign.request.epoch, .opened = true});
    for (auto& [id, told] : told_) {
      told.free_blocks = 10;
      Report(id);
    }
    return assign;
  }
  InstanceStatus StatusOf(InstanceId id) {
    for (const InstanceStatus& one : core_->Snapshot(now_).instances) {
      if (one.instance == id) return one;
    }
    return {};
  }
  static std::vector<RequestId> CancelledAt(InstanceId id, const Effects& effects) {
    std::vector<RequestId> ids;
    for (const CallCancel& cancel : Of<CallCancel>(effects)) {
      if (cancel.instance == id) ids.push_back(cancel.request.id);
    }
    return ids;
  }

  uint64_t last_incarnation_ = 0;
  std::map<InstanceId, Told> told_;
};

TEST_F(SlowTest, ASlowDecodeInstanceGetsLess) {
  UpMany(Role::kPrefill, 1);
  const auto decode = UpMany(Role::kDecode, 4);
  Pass(10);
  for (const InstanceId id : decode) told_.at(id).free_blocks = 5;
  told_.at(decode[2]).free_blocks = 10;
  Pass(1);
  EXPECT_EQ(Submit(1).request.placed->decode, decode[2]) << "the freest";
  Do(Closed({7, 1}));
  told_.at(decode[2]).step_us *= 3;
  Pass(10);
  EXPECT_EQ(StatusOf(decode[2]).pace.pace, Pace::kSlow);
  EXPECT_TRUE(StatusOf(decode[2]).placeable);
  EXPECT_EQ(core_->Totals().models.at("m").decode_paces.slow, 1);
  EXPECT_NE(Submit(2).request.placed->decode, decode[2]) << "its freeness counts a third";
}

TEST_F(SlowTest, AMuchSlowerOneGetsNothingNewAndThenItsStreamsGoOnElsewhere) {
  UpMany(Role::kPrefill, 1);
  const auto decode = UpMany(Role::kDecode, 4);
  StreamAt(decode[2], 1);
  told_.at(decode[2]).step_us *= 20;
  Pass(8);
  ASSERT_EQ(StatusOf(decode[2]).pace.pace, Pace::kSuspect);
  EXPECT_FALSE(StatusOf(decode[2]).placeable);
  EXPECT_EQ(core_->StateOf({7, 1}), "placed") << "it keeps what it has";
  for (auto& [id, told] : told_) told.free_blocks = id == decode[2] ? 10 : 3;
  Pass(1);
  EXPECT_NE(Submit(2).request.placed->decode, decode[2]);
  const Effects effects = Pass(10);
  EXPECT_EQ(StatusOf(decode[2]).pace.pace, Pace::kAside);
  EXPECT_EQ(core_->Totals().set_aside, 1u);
  const auto failed = Updates<Failed>(effects);
  ASSERT_EQ(failed.size(), 1u) << "its router tries it again behind the tokens it has";
  EXPECT_TRUE(absl::IsUnavailable(failed[0].status)) << failed[0].status;
  EXPECT_EQ(CancelledAt(decode[2], effects), std::vector<RequestId>({{7, 1}}));
  EXPECT_EQ(core_->StateOf({7, 1}), "");
  told_.at(decode[2]).held.clear();
  told_.at(decode[2]).step_us /= 20;
  Pass(80);
  EXPECT_EQ(StatusOf(decode[2]).pace.pace, Pace::kFair) << "it was tried again";
  EXPECT_TRUE(StatusOf(decode[2]).placeable);
}

TEST_F(SlowTest, AnInstanceThatHangsKeepsNothing) {
  UpMany(Role::kPrefill, 1);
  const auto decode = UpMany(Role::kDecode, 2);
  StreamAt(decode[1], 1);
  told_.at(decode[1]).step_age_us = 9 * kSecondUs;
  EXPECT_TRUE(Updates<Failed>(Report(decode[1])).empty());
  EXPECT_FALSE(StatusOf(decode[1]).placeable);
  told_.at(decode[1]).step_age_us = 10 * kSecondUs;
  const Effects effects = Report(decode[1]);
  ASSERT_EQ(Updates<Failed>(effects).size(), 1u);
  const Failed failed = Updates<Failed>(effects)[0];
  const FailedEngines engines = {{told_.at(decode[1]).incarnation}};
  EXPECT_TRUE(absl::IsUnavailable(failed.status)) << failed.status;
  EXPECT_EQ(failed.failed_engines, engines)
      << "the request may be why it hangs: the next attempt runs in steps of its own";
  EXPECT_FALSE(failed.condemned);
  EXPECT_EQ(CancelledAt(decode[1], effects), std::vector<RequestId>({{7, 1}}));
  EXPECT_TRUE(StatusOf(decode[1]).hangs);
  EXPECT_EQ(core_->Totals().hung, 1u);
  told_.at(decode[1]).step_age_us = 0;
  told_.at(decode[1]).held.clear();
  Report(decode[1]);
  EXPECT_FALSE(StatusOf(decode[1]).hangs);
  EXPECT_TRUE(StatusOf(decode[1]).placeable) << "its step has ended";
}

TEST_F(SlowTest, WhereThereIsNoOtherItKeepsItsStreams) {
  UpMany(Role::kPrefill, 1);
  const auto decode = UpMany(Role::kDecode, 1);
  StreamAt(decode[0], 1);
  told_.at(decode[0]).step_age_us = 100 * kSecondUs;
  EXPECT_TRUE(Updates<Failed>(Pass(5)).empty());
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
  UpMany(Role::kDecode, 1);
  EXPECT_EQ(Updates<Failed>(Report(decode[0])).size(), 1u);
}

TEST_F(SlowTest, APromptThatAHungPrefillInstanceHasBegunIsPlannedElsewhere) {
  UpMany(Role::kPrefill, 2);
  UpMany(Role::kDecode, 1);
  const CallAssign begun = Place(1);
  Told& told = told_.at(begun.instance);
  told.held = {{.id = {7, 1}, .epoch = begun.request.epoch, .opened = true}};
  told.step_age_us = 9 * kSecondUs;
  EXPECT_TRUE(CancelledAt(begun.instance, Report(begun.instance)).empty()) << "suspect, no more";
  told.step_age_us = 10 * kSecondUs;
  EXPECT_EQ(CancelledAt(begun.instance, Report(begun.instance)), std::vector<RequestId>({{7, 1}}));
  EXPECT_EQ(core_->StateOf({7, 1}), "replanning");
  EXPECT_EQ(core_->Totals().replans, 1u);
}

}  // namespace
}  // namespace skein::scheduler
