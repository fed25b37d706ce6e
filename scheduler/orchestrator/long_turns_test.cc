// Of requests that fit no decode instance: those that came first get their group, whatever comes
// behind them.
#include <algorithm>
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

// Workers that do what they are told, and run each request for some seconds.
class RandomLongTurns : public LongTurnsTest, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr TimeUs kStepUs = kSecondUs / 4;
  static constexpr TimeUs kLongestRunUs = 6 * kSecondUs;

  struct Running {
    CallAnnounce announced;
    TimeUs until_us = 0;
  };
  int64_t Random(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }
  void Carry(const Effects& effects) {
    for (const OrchestratorEffect& effect : effects) {
      if (const auto* prepare = std::get_if<CallPrepareFormation>(&effect)) {
        members_of_[prepare->request.epoch].push_back(prepare->instance);
        Carry(Tell(prepare->instance, prepare->request.epoch, Phase::kPrepared));
      } else if (const auto* commit = std::get_if<CallCommitFormation>(&effect)) {
        for (const InstanceId member : members_of_.at(commit->request.epoch)) {
          Carry(Tell(member, commit->request.epoch, Phase::kBound));
        }
      } else if (const auto* end = std::get_if<CallEndFormation>(&effect)) {
        ending_.insert(end->request.epoch);
      } else if (const auto* announce = std::get_if<CallAnnounce>(&effect)) {
        Begin(*announce);
      }
    }
    for (const Failed& failed : Updates<Failed>(effects)) failures_.push_back(failed.status);
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
  // What has run for long enough ends, and then the formations that are to.
  void EndSome() {
    std::vector<Running> over;
    std::erase_if(running_, [&](const Running& one) {
      if (one.until_us > now_) return false;
      over.push_back(one);
      return true;
    });
    for (const Running& one : over) Carry(End(one.announced));
    std::vector<uint64_t> ended;
    for (const uint64_t epoch : ending_) {
      const bool runs = std::any_of(running_.begin(), running_.end(), [&](const Running& one) {
        return one.announced.request.formation == epoch;
      });
      if (!runs) ended.push_back(epoch);
    }
    for (const uint64_t epoch : ended) {
      ending_.erase(epoch);
      for (const InstanceId member : members_of_.at(epoch)) {
        Carry(Tell(member, epoch, Phase::kEnded));
      }
    }
  }
  void Step() {
    Carry(Do(RouterReported{router_stream_, {}}));
    Carry(Until(now_ + kStepUs));
    EndSome();
    for (const InstanceId member : members_) Carry(Report(member, held_[member]));
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
  std::map<uint64_t, std::vector<InstanceId>> members_of_;  // by epoch
  std::set<uint64_t> ending_;
  std::vector<Running> running_;
  std::map<uint64_t, TimeUs> waiting_;  // by serial, since when
  std::vector<absl::Status> failures_;
};

// Short long ones come so often that the groups which run them never empty by themselves.
TEST_P(RandomLongTurns, WhoeverFitsTheWidestGroupEnds) {
  const bool large = GetParam() % 2 == 1;
  UpGroup(large ? 8 : 4);
  const int64_t widest = 160;
  // A dozen runs may have to end for it, one after another: those before it in the line.
  const TimeUs longest_wait_us = 12 * kLongestRunUs;
  uint64_t serial = 0;
  for (TimeUs next_us = now_, end_us = now_ + 200 * kSecondUs; now_ < end_us; Step()) {
    for (; next_us <= now_; next_us += Random(1, 2 * kSecondUs)) {
      const bool longer = Random(0, 15) == 0;
      Arrive(++serial, longer ? Random(81, widest) : Random(41, 80),
             /*priority=*/Random(0, 30) == 0 ? 1 : 0);
    }
    for (const auto& [waits, since_us] : waiting_) {
      ASSERT_LT(now_ - since_us, longest_wait_us) << "request " << waits;
    }
  }
  for (int i = 0; i < 400 && !(waiting_.empty() && running_.empty()); ++i) Step();
  EXPECT_TRUE(waiting_.empty());
  EXPECT_TRUE(running_.empty());
  EXPECT_TRUE(failures_.empty()) << failures_[0];
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomLongTurns, ::testing::Range(0, 20));

}  // namespace
}  // namespace skein::scheduler
