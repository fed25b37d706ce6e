// Instances that share their weights: orders of operators, offline jobs, and the mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/groups/formations.h"
#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

using Act = FormationOrder::Act;
using Phase = FormationTold::Phase;
using List = std::vector<std::string>;

constexpr TimeUs kDwellUs = 10 * kSecondUs;

FormationConfig ConfigOf(std::optional<int64_t> threshold) {
  FormationConfig config;
  config.policy.min_dwell_us = kDwellUs;
  config.policy.share_lines = 10;
  config.shared = {.threshold = threshold,
                   .leave_factor = 1.5,
                   .persists_us = kSecondUs,
                   .min_dwell_us = 20 * kSecondUs};
  return config;
}

// Four decode instances of a node, whose engines can share their weights. Each of them does what it
// is told at once.
class FormationsSharedTest : public PartsTest {
 protected:
  explicit FormationsSharedTest(std::optional<int64_t> threshold = 16)
      : PartsTest(nullptr, ConfigOf(threshold)) {}
  void SetUp() override {
    for (uint64_t i = 1; i <= 4; ++i) {
      members_.push_back(Join(Role::kDecode, i));
      registry_.Find(members_.back())->identity.shares_weights = true;
    }
    now_ = groups_.NextDue();
    workers_.OrderGroups(now_);
    ReportAll(0);
    effects_.clear();
  }
  // Each runs so many requests.
  void ReportAll(int64_t running) {
    for (const InstanceId member : members_) {
      const Instance& instance = *registry_.Find(member);
      ReportRequest report{.instance = member,
                           .incarnation = instance.identity.incarnation,
                           .serial = 1,
                           .load = instance.load,
                           .held = {}};
      report.load.groups_made = groups_.OrderOf(member).generation;
      report.load.running_requests = running;
      report.held_digest = instance.held_digest.value();
      workers_.On(ReportCalled{instance.connection, std::move(report)}, now_);
    }
  }
  // And what they are told then, until nothing is under way.
  void RunFor(TimeUs duration, int64_t running) {
    for (const TimeUs end_us = now_ + duration; now_ < end_us; now_ += kSecondUs / 4) {
      formations_.Tick(now_);
      ReportAll(running);
      Obey();
    }
  }
  void Order(Act act, std::vector<InstanceId> instances, std::optional<SharedMode> mode = {}) {
    FormationOrder order{.act = act, .instances = std::move(instances), .group = ""};
    if (order.instances.empty()) order.group = "m@a";
    order.shared = mode;
    formations_.On(FormationCalled{{++calls_}, std::move(order)}, now_);
  }
  // Carries out what is asked, and what that leads to.
  void Obey() {
    for (; obeyed_ < effects_.size(); ++obeyed_) {
      const OrchestratorEffect effect = effects_[obeyed_];
      if (const auto* prepare = std::get_if<CallPrepareFormation>(&effect)) {
        Tell(prepare->instance, prepare->request.epoch, Phase::kPrepared);
      } else if (const auto* commit = std::get_if<CallCommitFormation>(&effect)) {
        const FormationSwitch::Live live = *formations_.LiveOf(commit->instance);
        for (const InstanceId member : live.members) {
          const bool told = !live.mode || member == commit->instance;  // a lead binds the others
          if (told) Tell(member, commit->request.epoch, Phase::kBound);
        }
      } else if (const auto* end = std::get_if<CallEndFormation>(&effect)) {
        ends_told_.push_back(end->request.how);
        const FormationSwitch::Live* live = formations_.LiveOf(end->instance);
        const std::vector<InstanceId> all =
            live == nullptr || live->mode ? std::vector{end->instance} : live->members;
        for (const InstanceId member : all) Tell(member, end->request.epoch, Phase::kEnded);
      } else if (const auto* mode = std::get_if<CallMode>(&effect)) {
        if (mode->request.act == OrderMode::Act::kDrop) continue;
        const bool ready = mode->request.act == OrderMode::Act::kReady;
        formations_.On(
            ModeReported{mode->instance,
                         {.epoch = mode->request.epoch,
                          .turn = mode->request.turn,
                          .phase = !ready    ? ModeTold::Phase::kSet
                                   : refuse_ ? ModeTold::Phase::kRefused
                                             : ModeTold::Phase::kReady,
                          .why = refuse_ ? absl::UnavailableError("no room") : absl::OkStatus()}},
            now_);
      }
      EXPECT_TRUE(formations_.CheckInvariants().ok()) << formations_.CheckInvariants();
    }
  }
  void Tell(InstanceId member, uint64_t epoch, Phase phase) {
    formations_.On(FormationReported{member, {.epoch = epoch, .phase = phase}}, now_);
  }
  void Queue(int64_t lines) { formations_.On(OfflineQueued{"m", lines}, now_); }
  // A request that lives, and is placed nowhere yet.
  void Add(uint64_t serial, int32_t priority) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    spec->priority = priority;
    requests_.Add(std::move(spec), now_, now_ + 600 * kSecondUs);
  }
  void EraseAll() {
    std::vector<RequestId> all;
    requests_.ForEach([&](const Request& request) { all.push_back(request.spec->id); });
    for (const RequestId id : all) requests_.Erase(*requests_.Find(id));
  }
  List Names() const {
    List names;
    for (const auto& one : formations_.Show(*groups_.Named("m@a")).formations) {
      const auto size = static_cast<int32_t>(one.members.size());
      names.push_back(FormationName(one.epoch == 0 ? 1 : size, one.mode) +
                      (one.pinned ? " pinned" : "") +
                      (one.stage == "stands" ? "" : " " + std::string(one.stage)));
    }
    return names;
  }
  std::string WhyNotShared() const {
    for (const auto& one : formations_.Show(*groups_.Named("m@a")).rejected) {
      if (one.formation == "shared") return one.why;
    }
    return "";
  }

  std::vector<InstanceId> members_;
  size_t obeyed_ = 0;
  uint64_t calls_ = 0;
  bool refuse_ = false;  // to be ready for another mode
  std::vector<Switch> ends_told_;
};

TEST_F(FormationsSharedTest, AnOperatorSharesAndReleases) {
  Order(Act::kShare, {members_[0], members_[1]}, SharedMode::kWas);
  EXPECT_EQ(Names(), (List{"shared(was) pinned binding", "independent"}));
  Obey();
  EXPECT_EQ(Of<CallCommitFormation>().size(), 2u) << "each is told to enter";
  ASSERT_EQ(Of<AnswerFormation>().size(), 1u);
  EXPECT_TRUE(Of<AnswerFormation>()[0].status.ok());
  EXPECT_EQ(Of<AnswerFormation>()[0].done[0].substr(0, 27), "shared(was): instances 1, 2");
  EXPECT_EQ(Names(), (List{"shared(was) pinned", "independent"}));
  for (const InstanceId member : members_) {
    EXPECT_FALSE(registry_.Find(member)->closed_by_group) << "each gets requests";
    EXPECT_EQ(registry_.Find(member)->leads_formation, 0u);
  }
  RunFor(100 * kSecondUs, 0);
  EXPECT_EQ(Names(), (List{"shared(was) pinned", "independent"})) << "the mode is pinned, too";
  EXPECT_TRUE(Of<SharedModeChanged>().empty());
  Order(Act::kRelease, {members_[1]});
  Obey();
  EXPECT_EQ(ends_told_, (std::vector<Switch>(2, Switch::kSequential)));
  EXPECT_EQ(Names(), (List{"independent pinned", "independent"}));
  EXPECT_EQ(Of<AnswerFormation>().size(), 2u);
}

TEST_F(FormationsSharedTest, AnInstanceWhoseEngineCannotIsNamed) {
  registry_.Find(members_[3])->identity.shares_weights = false;
  registry_.Find(members_[3])->identity.device_kind = "cpu";
  Order(Act::kShare, {});
  ASSERT_EQ(Of<AnswerFormation>().size(), 1u);
  EXPECT_EQ(Of<AnswerFormation>()[0].status.message(),
            "instance 4 cannot share its weights: its engine on 'cpu' does not do it");
  EXPECT_TRUE(Of<CallPrepareFormation>().empty()) << "nothing is half done";
  EXPECT_EQ(Names(), (List{"independent"}));
}

TEST_F(FormationsSharedTest, WhatIsBoundIsReleasedBeforeItShares) {
  Order(Act::kBind, {members_[0], members_[1]});
  Obey();
  EXPECT_EQ(Names(), (List{"bound(2) pinned", "independent"}));
  Order(Act::kShare, {members_[0], members_[1]});
  Obey();
  EXPECT_EQ(Names(), (List{"shared(cas) pinned", "independent"})) << "the batch is small";
  Order(Act::kBind, {members_[0], members_[1]});
  Obey();
  EXPECT_EQ(Names(), (List{"bound(2) pinned", "independent"}));
  for (const AnswerFormation& answer : Of<AnswerFormation>()) EXPECT_TRUE(answer.status.ok());
}

TEST_F(FormationsSharedTest, TheModeFollowsTheBatch) {
  ReportAll(40);
  Order(Act::kShare, {});
  Obey();
  EXPECT_EQ(Names(), (List{"shared(was) pinned"}));
  RunFor(30 * kSecondUs, 40);
  EXPECT_TRUE(Of<SharedModeChanged>().empty());
  RunFor(3 * kSecondUs, 2);  // the tail
  EXPECT_EQ(Names(), (List{"shared(cas) pinned"}));
  const std::string why = formations_.Show(*groups_.Named("m@a")).formations[0].why;
  EXPECT_NE(why.find("cas: a mean batch of 2.0, below 24.0"), std::string::npos) << why;
  ASSERT_EQ(Of<SharedModeChanged>().size(), 1u);
  EXPECT_EQ(Of<SharedModeChanged>()[0].changed.outcome, SwitchOutcome::kDone);
  RunFor(15 * kSecondUs, 40);
  EXPECT_EQ(Names(), (List{"shared(cas) pinned"})) << "each mode is kept for a while";
  RunFor(10 * kSecondUs, 40);
  EXPECT_EQ(Names(), (List{"shared(was) pinned"}));
}

TEST_F(FormationsSharedTest, AModeThatIsRefusedIsTriedAgainLater) {
  ReportAll(40);
  Order(Act::kShare, {});
  Obey();
  refuse_ = true;
  RunFor(60 * kSecondUs, 2);
  EXPECT_EQ(Names(), (List{"shared(was) pinned"}));
  const size_t tried = Of<SharedModeChanged>().size();
  EXPECT_GE(tried, 1u);
  EXPECT_LE(tried, 3u) << "a dwell apart";
  EXPECT_NE(Of<SharedModeChanged>()[0].changed.reason.find("no room"), std::string::npos);
  refuse_ = false;
  RunFor(30 * kSecondUs, 2);
  EXPECT_EQ(Names(), (List{"shared(cas) pinned"}));
}

TEST_F(FormationsSharedTest, OfflineLinesShareAGroupThatIsQuiet) {
  Queue(39);
  RunFor(kDwellUs, 0);
  EXPECT_EQ(Names(), (List{"independent"}));
  EXPECT_EQ(WhyNotShared(), "9.8 offline lines an instance wait, less than 10.0");
  Queue(40);
  RunFor(kSecondUs, 0);
  EXPECT_EQ(Names(), (List{"shared(cas)"}));
  EXPECT_NE(formations_.Show(*groups_.Named("m@a")).why.find("offline jobs: 40 lines wait"),
            std::string::npos);
  Add(1, -5);  // a line that was begun: the tail
  Queue(0);
  RunFor(5 * kDwellUs, 1);
  EXPECT_EQ(Names(), (List{"shared(cas)"}));
  requests_.Erase(*requests_.Find({7, 1}));
  RunFor(kSecondUs, 0);
  EXPECT_EQ(Names(), (List{"independent"}));
  EXPECT_EQ(WhyNotShared(), "");
  EXPECT_EQ(ends_told_, (std::vector<Switch>(4, Switch::kSequential)));
}

TEST_F(FormationsSharedTest, GroupsOfFewAreSharedWhereOneCannot) {
  registry_.Find(members_[0])->identity.shares_weights = false;
  Queue(1'000);
  RunFor(kDwellUs + kSecondUs, 0);
  EXPECT_EQ(Names(), (List{"independent", "shared(cas)"}));
  RunFor(kDwellUs, 0);
  EXPECT_NE(WhyNotShared().find("instance 1 cannot share its weights"), std::string::npos);
}

TEST_F(FormationsSharedTest, ManyOnlineRequestsGetTheirInstancesBackAtOnce) {
  Queue(1'000);
  RunFor(kDwellUs + kSecondUs, 0);
  ASSERT_EQ(Names(), (List{"shared(cas)"}));
  for (uint64_t i = 1; i <= 100; ++i) Add(i, -5);
  RunFor(kSecondUs, 25);
  EXPECT_EQ(Names(), (List{"shared(cas)"})) << "these are the job's";
  for (uint64_t i = 101; i <= 116; ++i) Add(i, 0);
  const TimeUs asked_us = now_;
  RunFor(kSecondUs / 4, 29);
  EXPECT_EQ(Names(), (List{"independent"})) << "at the first report, whatever the dwell";
  EXPECT_LE(now_ - asked_us, Formations::kChooseUs);
  EXPECT_EQ(ends_told_, (std::vector<Switch>(4, Switch::kHard)));
  EXPECT_EQ(WhyNotShared(), "4.00 online requests an instance, more than 1.00");
  RunFor(3 * kDwellUs, 29);
  EXPECT_EQ(Names(), (List{"independent"}));
  EraseAll();
}

// What the group does when many online requests come.
enum class BurstMeets { kPreparing, kEntering, kShared, kModeChange, kJobsOver };
std::string NameOf(BurstMeets what) {
  constexpr const char* kNames[] = {"Preparing", "Entering", "Shared", "ModeChange", "JobsOver"};
  return kNames[static_cast<size_t>(what)];
}

class BurstTest : public FormationsSharedTest, public ::testing::WithParamInterface<BurstMeets> {
 protected:
  // The members report, and carry nothing out.
  void PassUntil(const std::function<bool()>& condition, int64_t running = 0) {
    for (const TimeUs end_us = now_ + 2 * kDwellUs; !condition(); now_ += kSecondUs / 4) {
      ASSERT_LT(now_, end_us);
      formations_.Tick(now_);
      ReportAll(running);
      EXPECT_TRUE(formations_.CheckInvariants().ok()) << formations_.CheckInvariants();
    }
  }
  void Reach(BurstMeets what) {
    Queue(1'000);
    if (what == BurstMeets::kPreparing || what == BurstMeets::kEntering) {
      PassUntil([&] { return !Of<CallPrepareFormation>().empty(); });
      if (what == BurstMeets::kPreparing) return;
      const uint64_t epoch = Of<CallPrepareFormation>()[0].request.epoch;
      for (const InstanceId member : members_) Tell(member, epoch, Phase::kPrepared);
      ASSERT_EQ(Of<CallCommitFormation>().size(), members_.size());
      return;
    }
    RunFor(kDwellUs + kSecondUs, 2);
    ASSERT_EQ(Names(), (List{"shared(cas)"}));
    if (what == BurstMeets::kModeChange) {
      RunFor(20 * kSecondUs, 2);
      PassUntil([&] { return !Of<CallMode>().empty(); }, 40);
    } else if (what == BurstMeets::kJobsOver) {
      Queue(0);
      PassUntil([&] { return !Of<CallEndFormation>().empty(); });
      ASSERT_EQ(Of<CallEndFormation>()[0].request.how, Switch::kSequential);
    }
  }
  // Which members are told to leave at once.
  std::set<InstanceId> ToldToLeave() const {
    std::set<InstanceId> told;
    for (const CallEndFormation& end : Of<CallEndFormation>()) {
      if (end.request.how == Switch::kHard) told.insert(end.instance);
    }
    return told;
  }
  bool AllWorkAlone() const {
    return std::all_of(members_.begin(), members_.end(),
                       [&](InstanceId member) { return formations_.LiveOf(member) == nullptr; });
  }
};

// Whatever they do, all are told to leave at the next report. If they never answer, the group is
// free without them after twice leave_us: told, and told again.
TEST_P(BurstTest, ItsInstancesAreBackWithinTheBound) {
  Reach(GetParam());
  for (uint64_t i = 101; i <= 116; ++i) Add(i, 0);
  const TimeUs asked_us = now_;
  PassUntil([&] { return ToldToLeave().size() == members_.size(); }, 4);
  // The last look was a moment before the burst, and the next one ends at the next report.
  EXPECT_LE(now_ - asked_us, Formations::kChooseUs + kSecondUs / 4);
  const FormationLimits limits;
  for (int times = 0; times < 2; ++times) {
    if (!AllWorkAlone()) PassUntil([&, end = now_ + limits.leave_us] { return now_ >= end; }, 4);
  }
  formations_.Tick(now_);
  EXPECT_TRUE(AllWorkAlone());
  EXPECT_LE(now_ - asked_us, Formations::kChooseUs + kSecondUs / 4 + 2 * limits.leave_us);
  EXPECT_EQ(Names(), (List{"independent"}));
  ASSERT_FALSE(Of<FormationSwitched>().empty());
  EXPECT_EQ(Of<FormationSwitched>().back().ended.unanswered.size(), members_.size());
  const uint64_t epoch = Of<CallEndFormation>().back().request.epoch;
  for (const InstanceId member : members_) Tell(member, epoch, Phase::kEnded);
  EraseAll();
}

INSTANTIATE_TEST_SUITE_P(Whatever, BurstTest,
                         ::testing::Values(BurstMeets::kPreparing, BurstMeets::kEntering,
                                           BurstMeets::kShared, BurstMeets::kModeChange,
                                           BurstMeets::kJobsOver),
                         [](const auto& info) { return NameOf(info.param); });

TEST_F(FormationsSharedTest, AMemberThatLeavesEndsItForAll) {
  Order(Act::kShare, {});
  Obey();
  formations_.Left(members_[1], now_);
  Obey();
  EXPECT_EQ(Of<FormationSwitched>().back().ended.outcome, SwitchOutcome::kFailed);
  EXPECT_EQ(formations_.LiveOf(members_[0]), nullptr);
}

class WithoutAThresholdTest : public FormationsSharedTest {
 protected:
  WithoutAThresholdTest() : FormationsSharedTest(std::nullopt) {}
};

TEST_F(WithoutAThresholdTest, TheModeIsWasAndSaysWhy) {
  Order(Act::kShare, {});
  Obey();
  RunFor(100 * kSecondUs, 1);
  EXPECT_EQ(Names(), (List{"shared(was) pinned"}));
  const std::string why = formations_.Show(*groups_.Named("m@a")).formations[0].why;
  EXPECT_NE(why.find("does not say from which batch on"), std::string::npos) << why;
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
