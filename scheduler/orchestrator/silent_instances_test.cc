// OrchestratorCore and instances that say nothing, while their streams stand: first they get
// nothing new, then their requests go on at others, and their next word takes them back.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

constexpr TimeUs kSilentUs = 1500 * kMillisecondUs;
constexpr TimeUs kQuietUs = kSilentUs * 2 / 3;
constexpr TimeUs kReportUs = 500 * kMillisecondUs;  // a sixth of a lease

class SilentInstancesTest : public OrchestratorCoreTest {
 protected:
  SilentInstancesTest() { Start({}); }

  void Start(const PeerBuild& build) {
    core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{
        .generation = kGeneration, .instance_silent_us = kSilentUs, .build = build});
    processes_.clear();
    for (uint64_t process = 1; process <= 4; ++process) {
      processes_[Up(process <= 2 ? Role::kPrefill : Role::kDecode, process)] = process;
    }
    RouterConnects(7);
  }
  Effects Says(InstanceId id, std::vector<HeldRequest> held = {},
               std::vector<EndedRequest> ended = {}) {
    return Report(id, processes_.at(id), std::move(held), std::move(ended));
  }
  // Time passes until then; all but the silent ones report, and the router does.
  Effects PassUntil(TimeUs end) {
    Effects all;
    const auto append = [&](Effects more) {
      for (OrchestratorEffect& effect : more) all.push_back(std::move(effect));
    };
    while (now_ < end) {
      append(Until(std::min(end, (now_ / kReportUs + 1) * kReportUs)));
      if (now_ % kReportUs != 0) continue;
      for (const auto& [id, process] : processes_) {
        if (silent_.count(id) == 0) append(Says(id));
      }
      append(Do(RouterReported{router_stream_, {}}));
    }
    return all;
  }
  Effects RouterHears(InstanceId id, bool hears) {
    RouterLoad load;
    (hears ? load.heard : load.not_heard).push_back({processes_.at(id)});
    return Do(RouterReported{router_stream_, load});
  }
  // A request whose answer streams; the decode instance falls silent now.
  CallAssign StreamAtTheSilent() {
    const CallAssign assign = Place(1);
    Says(assign.instance, {}, {{.id = {7, 1}, .epoch = assign.request.epoch, .status = {}}});
    FallsSilent(assign.request.placed->decode);
    return assign;
  }
  void FallsSilent(InstanceId id) {
    Says(id);
    silent_.insert(id);
    since_us_ = now_;
  }
  InstanceStatus StatusOf(InstanceId id) {
    for (const InstanceStatus& one : core_->Snapshot(now_).instances) {
      if (one.instance == id) return one;
    }
    return {};
  }
  uint64_t Lost() { return core_->Totals().instances_lost; }

  std::map<InstanceId, uint64_t> processes_;
  std::set<InstanceId> silent_;
  TimeUs since_us_ = 0;
};

TEST_F(SilentInstancesTest, AQuietInstanceGetsNothingNewUntilItsNextWord) {
  FallsSilent({processes_.begin()->first});
  const InstanceId quiet = *silent_.begin();
  PassUntil(since_us_ + kQuietUs - 1);
  EXPECT_TRUE(StatusOf(quiet).placeable);
  PassUntil(since_us_ + kQuietUs);
  EXPECT_FALSE(StatusOf(quiet).placeable);
  for (uint64_t serial = 1; serial <= 3; ++serial) EXPECT_NE(Submit(serial).instance, quiet);
  Says(quiet);
  EXPECT_TRUE(StatusOf(quiet).placeable);
  EXPECT_EQ(Lost(), 0u);
}

TEST_F(SilentInstancesTest, APromptThatAQuietInstanceHasNotBegunGoesToAnother) {
  const CallAssign assign = Submit(1);
  FallsSilent(assign.instance);
  const Effects effects = PassUntil(since_us_ + kSilentUs);
  const auto again = Of<CallAssign>(effects);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].instance, assign.instance);
  // The silent one did not confirm that it has left the plan; should it live, it hears of it.
  const auto cancels = Of<CallCancel>(effects);
  EXPECT_TRUE(std::any_of(cancels.begin(), cancels.end(), [&](const CallCancel& one) {
    return one.instance == assign.instance && one.request.epoch == assign.request.epoch;
  }));
  EXPECT_LT(now_, since_us_ + 3 * kSecondUs) << "not as late as its lease";
  EXPECT_EQ(Lost(), 0u);
}

TEST_F(SilentInstancesTest, StreamsOfASilentInstanceThatNoRouterHearsGoOnElsewhere) {
  const CallAssign assign = StreamAtTheSilent();
  const InstanceId silent = assign.request.placed->decode;
  EXPECT_TRUE(Ends(PassUntil(since_us_ + kSilentUs - 1)).empty());
  const Effects effects = PassUntil(since_us_ + kSilentUs);
  const auto failed = Updates<Failed>(effects);
  ASSERT_EQ(failed.size(), 1u) << "the router tries it again";
  EXPECT_TRUE(absl::IsUnavailable(failed[0].status)) << failed[0].status;
  // It is fenced: its next word finds the order to end what it has.
  const auto cancels = Of<CallCancel>(effects);
  ASSERT_EQ(cancels.size(), 1u);
  EXPECT_EQ(cancels[0].instance, silent);
  EXPECT_EQ(cancels[0].request.epoch, assign.request.epoch);
  Says(silent, {{{7, 1}, assign.request.epoch, true}});
  EXPECT_TRUE(StatusOf(silent).placeable) << "it is taken back";
  EXPECT_EQ(Lost(), 0u);
}

TEST_F(SilentInstancesTest, AnInstanceThatARouterHearsKeepsItsStreams) {
  const InstanceId silent = StreamAtTheSilent().request.placed->decode;
  RouterHears(silent, true);
  EXPECT_TRUE(Ends(PassUntil(since_us_ + 10 * kSecondUs)).empty());
  EXPECT_FALSE(StatusOf(silent).placeable);
  EXPECT_EQ(Lost(), 0u);
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
}

TEST_F(SilentInstancesTest, ItIsLeftAsSoonAsNoRouterHearsItAnyMore) {
  const InstanceId silent = StreamAtTheSilent().request.placed->decode;
  RouterHears(silent, true);
  EXPECT_TRUE(Ends(PassUntil(since_us_ + kSilentUs + kReportUs / 2)).empty());
  RouterHears(silent, false);
  EXPECT_EQ(Updates<Failed>(PassUntil(now_ + kSilentUs / 16)).size(), 1u);
  EXPECT_EQ(Lost(), 0u) << "its lease goes on";
}

// As when the whole machine stands still: there is no better place.
TEST_F(SilentInstancesTest, WhereAllAreSilentForAsLongNothingMoves) {
  for (const auto& [id, process] : processes_) FallsSilent(id);
  const CallAssign assign = Submit(1);
  PassUntil(since_us_ + 2 * kSecondUs);
  EXPECT_EQ(core_->StateOf({7, 1}), "assigned");
  EXPECT_TRUE(StatusOf(assign.instance).placeable);
  for (const auto& [id, process] : processes_) Says(id);
  for (const auto& [id, process] : processes_) EXPECT_TRUE(StatusOf(id).placeable);
  EXPECT_EQ(Lost(), 0u);
}

// An own pause is not the silence of others.
TEST_F(SilentInstancesTest, APauseOfTheOrchestratorMakesNobodyQuiet) {
  for (int i = 0; i < 100; ++i) {
    now_ += 3 * kSilentUs;
    if (now_ >= core_->NextDeadline()) Do(OrchestratorTick{});
    for (const auto& [id, process] : processes_) EXPECT_TRUE(StatusOf(id).placeable);
    for (const auto& [id, process] : processes_) Says(id);
  }
  EXPECT_EQ(Lost(), 0u);
}

// They report every third of a lease: a late report is not their silence.
TEST_F(SilentInstancesTest, WorkersOfAnOlderRevisionHaveTheirLease) {
  Start({.version = "0.4.0", .protocol = {0, 1}});
  FallsSilent(processes_.begin()->first);
  PassUntil(since_us_ + 2 * kSecondUs);
  EXPECT_TRUE(StatusOf(*silent_.begin()).placeable);
  PassUntil(since_us_ + 3 * kSecondUs);
  EXPECT_EQ(Lost(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
