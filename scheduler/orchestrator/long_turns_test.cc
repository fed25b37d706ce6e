// Of requests that fit no decode instance: those that came first get their group, whatever comes
// behind them.
#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/testing/long_testing.h"

namespace skein::scheduler {
namespace {

using Act = orchestrator::FormationOrder::Act;
using Phase = FormationTold::Phase;

class LongTurnsTest : public LongRequestsTest {
 protected:
  // It has ended at its lead, which runs the others on.
  Effects End(const CallAnnounce& announced) {
    const RequestId id = announced.request.spec->id;
    std::vector<HeldRequest>& held = held_[announced.instance];
    std::erase_if(held, [&](const HeldRequest& one) { return one.id == id; });
    return Report(announced.instance, held,
                  {{id, announced.request.epoch, FinishReason::kStop, absl::OkStatus()}});
  }
  // Whoever was told to end a formation has ended it. What came of it.
  Effects EndAll(const Effects& effects) {
    Effects all;
    for (const CallEndFormation& end : Of<CallEndFormation>(effects)) {
      for (const InstanceId member : members_) {
        for (OrchestratorEffect& effect : Tell(member, end.request.epoch, Phase::kEnded)) {
          all.push_back(std::move(effect));
        }
      }
    }
    return all;
  }
};

TEST_F(LongTurnsTest, LaterOnesDoNotJoinWhatALongerOneWaitsFor) {
  UpGroup();
  Submit(1, 70);
  const CallAnnounce first = Of<CallAnnounce>(Complete(ReportAll())).at(0);
  Runs(first);
  EXPECT_EQ(Of<CallAnnounce>(Submit(2, 70)).size(), 1u) << "nobody waits";
  Do(Closed({7, 2}));
  Submit(3, 150);
  ReportAll();
  EXPECT_TRUE(Of<CallAnnounce>(Submit(4, 70)).empty());
  const Effects urgent = Submit(5, 70, 4, /*priority=*/1);
  ASSERT_EQ(Of<CallAnnounce>(urgent).size(), 1u) << "urgent ones go before";
  EXPECT_EQ(Of<CallAnnounce>(urgent)[0].instance, first.instance);
  Runs(Of<CallAnnounce>(urgent)[0]);
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(Of<CallAnnounce>(ReportAll()).empty());
  End(first);
  End(Of<CallAnnounce>(urgent)[0]);
  const Effects asked = EndAll(ReportAll());
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 4u);
  EXPECT_EQ(Of<CallAnnounce>(Complete(asked)).size(), 2u) << "the shorter one with it";
}

TEST_F(LongTurnsTest, WhenTheLongerOneIsCancelledOthersGoOn) {
  UpGroup();
  Submit(1, 70);
  Runs(Of<CallAnnounce>(Complete(ReportAll())).at(0));
  Submit(2, 150);
  ReportAll();
  Submit(3, 70);
  EXPECT_EQ(StateOf(3), "grouping");
  Do(Closed({7, 2}));
  EXPECT_EQ(Of<CallAnnounce>(ReportAll()).size(), 1u);
}

TEST_F(LongTurnsTest, OneThatWaitsGoesToAGroupThatHasComeAndHasFewer) {
  UpGroup();
  Submit(1, 70);
  const CallAnnounce first = Of<CallAnnounce>(Complete(ReportAll())).at(0);
  Runs(first);
  Submit(2, 150);
  ReportAll();
  EXPECT_EQ(StateOf(2), "grouping");
  node_ = "b";
  UpGroup();
  Effects asked;
  for (int i = 0; i < 5 && Of<CallPrepareFormation>(asked).empty(); ++i) asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 4u);
  for (const CallPrepareFormation& one : Of<CallPrepareFormation>(asked)) {
    EXPECT_GE(one.instance, members_[4]);
  }
  EXPECT_EQ(Of<CallAnnounce>(Complete(asked)).size(), 1u);
}

// It waits for the one that is being restarted.
TEST_F(LongTurnsTest, OneThatTheGroupCannotBeBoundForNowKeepsNoOtherWaiting) {
  UpGroup();
  Leave(members_[3]);
  EXPECT_EQ(FailureOf(Submit(1, 150)), "");
  EXPECT_EQ(FailureOf(Submit(2, 70)), "");
  Effects asked;
  for (int i = 0; i < 3 && Of<CallPrepareFormation>(asked).empty(); ++i) asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  const std::vector<CallAnnounce> announced = Of<CallAnnounce>(Complete(asked));
  ASSERT_EQ(announced.size(), 1u);
  EXPECT_EQ(announced[0].request.spec->id.serial, 2u);
  EXPECT_EQ(StateOf(1), "grouping");
  Runs(announced[0]);
  EXPECT_EQ(Of<CallAnnounce>(Submit(3, 70)).size(), 1u) << "others join it meanwhile";
}

// Two fours, in each of which a two runs one: the longer one waits for one of the fours.
TEST_F(LongTurnsTest, OtherInstancesTakeLaterOnesMeanwhile) {
  UpGroup(8);
  Complete(Order(Act::kBind, {members_[0], members_[1]}));
  Complete(Order(Act::kBind, {members_[4], members_[5]}));
  std::vector<CallAnnounce> running;
  for (const uint64_t serial : {1, 2}) {
    running.push_back(Of<CallAnnounce>(Submit(serial, 70)).at(0));
    Runs(running.back());
  }
  Order(Act::kUnpin, {}, "m@a");
  Submit(3, 150);
  ReportAll();
  std::set<InstanceId> leads;
  for (uint64_t serial = 4; serial < 10; ++serial) {
    const std::vector<CallAnnounce> announced = Of<CallAnnounce>(Submit(serial, 70));
    ASSERT_EQ(announced.size(), 1u) << serial;
    leads.insert(announced[0].instance);
    Runs(announced[0]);
  }
  ASSERT_EQ(leads.size(), 1u);
  const auto waited_for = std::find_if(running.begin(), running.end(), [&](const auto& one) {
    return !leads.contains(one.instance);
  });
  ASSERT_NE(waited_for, running.end());
  End(*waited_for);
  EXPECT_EQ(Of<CallPrepareFormation>(EndAll(ReportAll())).size(), 4u);
}

// ---- any order of arrivals ----

// Workers that do what they are told, and run each request for some seconds. Some leave, and come
// back as another process.
class RandomLongTurns : public LongTurnsTest, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr TimeUs kStepUs = kSecondUs / 4;
  static constexpr TimeUs kLongestRunUs = 6 * kSecondUs;
  static constexpr TimeUs kLongestAwayUs = 4 * kSecondUs;  // far less than FormationConfig's wait
  // A dozen runs may have to end for a request, one after another: those before it in the line.
  static constexpr TimeUs kLongestWaitUs = 12 * kLongestRunUs;

  struct Running {
    CallAnnounce announced;
    TimeUs until_us = 0;
  };
  int64_t Random(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }
  bool IsThere(InstanceId instance) const {
    return std::find(members_.begin(), members_.end(), instance) != members_.end();
  }
  void Carry(const Effects& effects) {
    for (const OrchestratorEffect& effect : effects) {
      if (const auto* prepare = std::get_if<CallPrepareFormation>(&effect)) {
        members_of_[prepare->request.epoch].push_back(prepare->instance);
        Carry(Tell(prepare->instance, prepare->request.epoch, Phase::kPrepared));
      } else if (const auto* commit = std::get_if<CallCommitFormation>(&effect)) {
        TellAll(commit->request.epoch, Phase::kBound);
      } else if (const auto* end = std::get_if<CallEndFormation>(&effect)) {
        ending_.insert(end->request.epoch);
        if (end->request.how == Switch::kHard) LoseAll(end->request.epoch);
      } else if (const auto* announce = std::get_if<CallAnnounce>(&effect)) {
        Begin(*announce);
      } else if (const auto* group = std::get_if<CallGroup>(&effect)) {
        made_[group->instance] = group->request.generation;
      }
    }
    for (const SendPlanUpdate& update : Of<SendPlanUpdate>(effects)) {
      if (const auto* failed = std::get_if<Failed>(&update.update)) Fail(update.id, failed->status);
    }
  }
  void TellAll(uint64_t epoch, Phase phase) {
    const std::vector<InstanceId> members = members_of_.at(epoch);
    for (const InstanceId member : members) {
      if (IsThere(member)) Carry(Tell(member, epoch, phase));
    }
  }
  // Only what had begun in a group that lost a member may fail.
  void Fail(RequestId id, const absl::Status& status) {
    waiting_.erase(id.serial);
    if (lost_.contains(id.serial) && absl::IsUnavailable(status)) return;
    failures_.push_back(status);
  }
  void Begin(const CallAnnounce& announce) {
    if (!waiting_.contains(announce.request.spec->id.serial)) return;
    ASSERT_NE(announce.request.formation, 0u);
    ASSERT_FALSE(ending_.contains(announce.request.formation));
    Runs(announce);
    running_.push_back({announce, now_ + Random(1, kLongestRunUs)});
    waiting_.erase(announce.request.spec->id.serial);
  }
  void Arrive(uint64_t serial, int64_t tokens, int32_t priority) {
    waiting_[serial] = now_;
    Carry(Submit(serial, tokens - 4, 4, priority));
  }
  template <class Which>
  std::vector<Running> Take(const Which& which) {
    std::vector<Running> taken;
    std::erase_if(running_, [&](const Running& one) {
      if (!which(one)) return false;
      taken.push_back(one);
      return true;
    });
    return taken;
  }
  // The group ends for all: its lead, if it lives, tells that what ran in it has failed.
  void LoseAll(uint64_t epoch) {
    for (const Running& one :
         Take([&](const Running& any) { return any.announced.request.formation == epoch; })) {
      const RequestId id = one.announced.request.spec->id;
      lost_.insert(id.serial);
      waiting_[id.serial] = now_;  // until it is told to have failed, or begins anew
      const InstanceId lead = one.announced.instance;
      if (!IsThere(lead)) continue;
      std::erase_if(held_[lead], [&](const HeldRequest& held) { return held.id == id; });
      Carry(Report(lead, held_[lead],
                   {{id, one.announced.request.epoch, FinishReason::kError,
                     absl::UnavailableError("the bound group has ended")}}));
    }
  }
  // What has run for long enough ends, and then the formations that are to.
  void EndSome() {
    for (const Running& one : Take([&](const Running& any) { return any.until_us <= now_; })) {
      Carry(End(one.announced));
    }
    std::vector<uint64_t> ended;
    for (const uint64_t epoch : ending_) {
      const bool runs = std::any_of(running_.begin(), running_.end(), [&](const Running& one) {
        return one.announced.request.formation == epoch;
      });
      if (!runs) ended.push_back(epoch);
    }
    for (const uint64_t epoch : ended) {
      ending_.erase(epoch);
      TellAll(epoch, Phase::kEnded);
    }
  }
  void Step() {
    Carry(Do(RouterReported{router_stream_, {}}));
    Carry(Until(now_ + kStepUs));
    EndSome();
    const std::vector<InstanceId> members = members_;
    for (const InstanceId member : members) {
      if (IsThere(member)) Carry(Report(member, held_[member]));
    }
  }
  // One of them, whatever it does; it is back after a while.
  void LeaveAtRandom() {
    const InstanceId leaves = members_[static_cast<size_t>(Random(0, std::ssize(members_) - 1))];
    std::erase(members_, leaves);
    ++leaves_;
    back_us_ = now_ + Random(kSecondUs / 2, kLongestAwayUs);
    const Effects effects = Do(UnregisterCalled{Call(), {leaves, {incarnation_of_[leaves]}}});
    for (const auto& [epoch, members] : members_of_) {
      if (std::find(members.begin(), members.end(), leaves) == members.end()) continue;
      LoseAll(epoch);
    }
    Carry(effects);
  }
  void ComeBack() {
    back_us_ = kNever;
    const uint64_t incarnation = ++incarnations_;
    const Effects effects = Do(RegisterCalled{Call(), {IdentityOf(Role::kDecode, incarnation)}});
    const InstanceId id = Of<AnswerRegister>(effects).at(0).reply.instance;
    incarnation_of_[id] = incarnation;
    members_.push_back(id);
    Carry(effects);
  }
  // Short long ones come so often that the groups which run them never empty by themselves.
  void ArriveFor(TimeUs lasts_us, int64_t widest) {
    const TimeUs end_us = now_ + lasts_us;
    for (TimeUs next_us = now_; now_ < end_us; Step()) {
      for (; next_us <= now_; next_us += Random(1, 2 * kSecondUs)) {
        const bool longer = Random(0, 15) == 0;
        Arrive(++serial_of_request_, longer ? Random(81, widest) : Random(41, 80),
               /*priority=*/Random(0, 30) == 0 ? 1 : 0);
      }
      if (now_ >= back_us_) ComeBack();
      if (leaves_often_ && back_us_ == kNever && Random(0, 60) == 0) LeaveAtRandom();
      for (const auto& [waits, since_us] : waiting_) {
        ASSERT_LT(now_ - since_us, kLongestWaitUs) << "request " << waits;
      }
    }
  }
  void ExpectAllEnd() {
    if (back_us_ != kNever) ComeBack();
    for (int i = 0; i < 400 && !(waiting_.empty() && running_.empty()); ++i) Step();
    EXPECT_TRUE(waiting_.empty());
    EXPECT_TRUE(running_.empty());
    EXPECT_TRUE(failures_.empty()) << failures_[0];
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
  std::map<uint64_t, std::vector<InstanceId>> members_of_;  // by epoch
  std::set<uint64_t> ending_;
  std::vector<Running> running_;
  std::map<uint64_t, TimeUs> waiting_;  // by serial, since when
  std::set<uint64_t> lost_;             // serials of what ran in a group that lost a member
  std::vector<absl::Status> failures_;
  uint64_t serial_of_request_ = 0;
  bool leaves_often_ = false;
  int leaves_ = 0;
  TimeUs back_us_ = kNever;  // when the one that has left is back
};

constexpr int64_t kWidest = 160;  // tokens, of bound(4) and bound(8): there are 4 heads

TEST_P(RandomLongTurns, WhoeverFitsTheWidestGroupEnds) {
  UpGroup(GetParam() % 2 == 1 ? 8 : 4);
  ArriveFor(200 * kSecondUs, kWidest);
  ExpectAllEnd();
}

// Instances leave meanwhile, one at a time, and come back. What ran with one that leaves fails, or
// begins anew; whoever waits gets its group all the same.
TEST_P(RandomLongTurns, WhoeverFitsEndsThoughInstancesLeave) {
  leaves_often_ = true;
  UpGroup(GetParam() % 2 == 1 ? 8 : 4);
  ArriveFor(200 * kSecondUs, kWidest);
  ExpectAllEnd();
  EXPECT_GT(leaves_, 3);
  EXPECT_FALSE(lost_.empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomLongTurns, ::testing::Range(0, 20));

}  // namespace
}  // namespace skein::scheduler
