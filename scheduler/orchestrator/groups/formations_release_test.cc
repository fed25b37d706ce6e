// How Formations releases by load, when it sees prompts wait (FormationChoice::release).
#include <string>
#include <vector>

#include "scheduler/orchestrator/groups/formations.h"
#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

using Act = FormationOrder::Act;
using Phase = FormationTold::Phase;

FormationConfig Config() {
  FormationConfig config;
  config.policy.release_waiting_tokens = 1000;
  config.profiles[""] = {.gains = {{2, 1.6}}};
  return config;
}

// Two decode instances of a node, bound by load.
class FormationsReleaseTest : public PartsTest {
 protected:
  FormationsReleaseTest() : PartsTest(nullptr, Config()) {}
  void SetUp() override {
    for (uint64_t i = 1; i <= 2; ++i) members_.push_back(Join(Role::kDecode, i));
    now_ = groups_.NextDue();
    workers_.OrderGroups(now_);
    for (const InstanceId member : members_) Report(member);
    now_ += 11 * kSecondUs;
    Drive(0);
    for (const Phase phase : {Phase::kPrepared, Phase::kBound}) Tell(phase);
    ASSERT_EQ(formations_.LiveOf(members_[1])->stage, FormationSwitch::Stage::kBound);
    now_ += 11 * kSecondUs;
  }
  void Report(InstanceId member) {
    const Instance& instance = *registry_.Find(member);
    ReportRequest report{.instance = member,
                         .incarnation = instance.identity.incarnation,
                         .serial = 1,
                         .load = instance.load,
                         .held = {}};
    report.load.groups_made = groups_.OrderOf(member).generation;
    report.held_digest = instance.held_digest.value();
    workers_.On(ReportCalled{instance.connection, std::move(report)}, now_);
  }
  // So many tokens of prompts are to be computed, and so many requests run, at the first instance.
  void Drive(int64_t waiting_tokens, int64_t running = 0) {
    now_ += Formations::kChooseUs;
    Instance& instance = *registry_.Find(members_[0]);
    instance.load.queued_tokens = waiting_tokens;
    instance.load.running_requests = running;
    registry_.Recount(instance);
    effects_.clear();
    formations_.Reported(members_[0], now_);
  }
  void Tell(Phase phase) {
    const uint64_t epoch = formations_.LiveOf(members_[0])->report.epoch;
    for (const InstanceId member : members_) {
      formations_.On(FormationReported{member, {.epoch = epoch, .phase = phase}}, now_);
    }
  }

  std::vector<InstanceId> members_;
};

TEST_F(FormationsReleaseTest, LetsSequencesEndWhilePromptsWaitAndThenComputesThemAnew) {
  Drive(1999);
  EXPECT_TRUE(Of<CallEndFormation>().empty());
  Drive(2000);
  ASSERT_EQ(Of<CallEndFormation>().size(), 1u);
  EXPECT_EQ(Of<CallEndFormation>()[0].instance, members_[0]);
  EXPECT_EQ(Of<CallEndFormation>()[0].request.how, Switch::kSequential);
  Drive(1000, 6);
  EXPECT_TRUE(Of<CallEndFormation>().empty());
  Drive(999, 6);
  ASSERT_FALSE(Of<CallEndFormation>().empty());
  EXPECT_EQ(Of<CallEndFormation>()[0].request.how, Switch::kHard);
  Drive(999, 6);
  EXPECT_TRUE(Of<CallEndFormation>().empty());
  EXPECT_TRUE(formations_.CheckInvariants().ok());
}

// When the group is quiet again, there is no hurry: it ends, and is bound again.
TEST_F(FormationsReleaseTest, DoesNotHastenWhatIsToBeBoundAgain) {
  Drive(2000);
  ASSERT_EQ(Of<CallEndFormation>().size(), 1u);
  Drive(0);
  EXPECT_TRUE(Of<CallEndFormation>().empty());
  Tell(Phase::kEnded);
  EXPECT_EQ(formations_.LiveOf(members_[0]), nullptr);
  now_ += 11 * kSecondUs;
  Drive(0);
  EXPECT_EQ(Of<CallPrepareFormation>().size(), 2u);
}

// Prompts on their way to an instance wait, too.
TEST_F(FormationsReleaseTest, CountsThePromptsThatWerePlaced) {
  registry_.Find(members_[1])->unreported.prompt_tokens = 1500;
  Drive(500);
  EXPECT_EQ(Of<CallEndFormation>().size(), 1u);
  registry_.Find(members_[1])->unreported.prompt_tokens = 0;
}

// What an operator orders is released as ordered, however few prompts wait.
TEST_F(FormationsReleaseTest, DoesNotHastenWhatAnOperatorReleases) {
  formations_.On(FormationCalled{{1}, {Act::kRelease, {}, "m@a", 0, Switch::kSequential}}, now_);
  ASSERT_EQ(Of<CallEndFormation>().size(), 1u);
  EXPECT_EQ(Of<CallEndFormation>()[0].request.how, Switch::kSequential);
  Drive(0);
  EXPECT_TRUE(Of<CallEndFormation>().empty());
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
