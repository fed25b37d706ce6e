#include "scheduler/orchestrator/registry/pace_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace skein::scheduler {
namespace {

// Decode instances 1, 2, ... that report once a second, ten steps each time.
class PaceWatchTest : public ::testing::Test {
 protected:
  struct Load {
    TimeUs step_us = 100 * kMillisecondUs;
    double tokens = 8;  // of a step
    int64_t kv_blocks = 100;
    bool measures = true;
  };

  void Up(int count) {
    for (int i = 0; i < count; ++i) loads_[{++last_}] = {};
  }
  void Report(InstanceId id) {
    const Load& load = loads_.at(id);
    if (load.measures) steps_[id] += 10;
    WorkerLoad told;
    told.steps = steps_[id];
    told.mean_step_us = load.step_us;
    told.tokens_per_second = load.tokens * kSecondUs / static_cast<double>(load.step_us);
    told.held_blocks = load.kv_blocks;
    watch_.Report(id, {.role = role_, .model = "m", .device_kind = kind_of_[id]}, told, comparable_,
                  others_, now_);
    EXPECT_TRUE(watch_.CheckInvariants().ok()) << watch_.CheckInvariants();
  }
  void Pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now_ += kSecondUs;
      for (const auto& [id, load] : loads_) Report(id);
    }
  }
  Pace PaceOf(uint64_t id) const { return watch_.Of({id}).pace; }
  // Reports until it has this pace; how many seconds that took.
  int SecondsUntil(uint64_t id, Pace pace) {
    for (int seconds = 0; seconds < 5000; ++seconds) {
      if (PaceOf(id) == pace) return seconds;
      Pass(1);
    }
    ADD_FAILURE() << "instance " << id << " never becomes " << NameOf(pace);
    return -1;
  }

  PaceConfig config_;
  PaceWatch watch_{config_};
  std::map<InstanceId, Load> loads_;
  std::map<InstanceId, int64_t> steps_;
  std::map<InstanceId, std::string> kind_of_;
  Role role_ = Role::kDecode;
  bool comparable_ = true;
  bool others_ = true;
  uint64_t last_ = 0;
  TimeUs now_ = 0;
};

TEST_F(PaceWatchTest, AnInstanceThatIsManyTimesSlowerIsSuspectThenAsideAndTriedAgainAfterAPause) {
  Up(4);
  Pass(20);
  EXPECT_EQ(PaceOf(3), Pace::kFair);
  loads_[{3}].step_us *= 20;
  EXPECT_LE(SecondsUntil(3, Pace::kSlow), 7);
  EXPECT_NEAR(watch_.Of({3}).slowness, 20, 1e-6);
  EXPECT_NEAR(watch_.Of({3}).Weight(), 0.05, 1e-6);
  EXPECT_EQ(watch_.Of({3}).peers, 3);
  EXPECT_LE(SecondsUntil(3, Pace::kSuspect), 7);
  EXPECT_EQ(SecondsUntil(3, Pace::kAside), 10);
  loads_[{3}].measures = false;  // it has nothing to run
  EXPECT_EQ(SecondsUntil(3, Pace::kSlow), 60);
  loads_[{3}].measures = true;
  SecondsUntil(3, Pace::kSuspect);
  SecondsUntil(3, Pace::kAside);
  EXPECT_EQ(SecondsUntil(3, Pace::kSlow), 120) << "the pause doubles";
  loads_[{3}].step_us /= 20;
  SecondsUntil(3, Pace::kFair);
  EXPECT_EQ(watch_.Of({3}).Weight(), 1);
  for (uint64_t id : {1, 2, 4}) EXPECT_EQ(PaceOf(id), Pace::kFair);
  EXPECT_EQ(watch_.suspected(), 2u);
  EXPECT_EQ(watch_.set_aside(), 2u);
}

TEST_F(PaceWatchTest, OneThatIsAFewTimesSlowerGetsLessAndNoMore) {
  Up(4);
  loads_[{2}].step_us *= 3;
  Pass(600);
  EXPECT_EQ(PaceOf(2), Pace::kSlow);
  EXPECT_NEAR(watch_.Of({2}).Weight(), 1 / 3.0, 1e-6);
}

TEST_F(PaceWatchTest, MoreTokensOrMoreKvDoNotMakeItSlow) {
  Up(5);
  loads_[{1}] = {.step_us = 800 * kMillisecondUs, .tokens = 64};
  loads_[{2}] = {.step_us = 800 * kMillisecondUs, .kv_blocks = 800};
  Pass(600);
  EXPECT_EQ(PaceOf(1), Pace::kFair);
  EXPECT_EQ(PaceOf(2), Pace::kFair);
  loads_[{1}].step_us *= 4;
  Pass(10);
  EXPECT_EQ(PaceOf(1), Pace::kSlow) << "its tokens explain a quarter of it";
}

TEST_F(PaceWatchTest, ABusyMachineThatSlowsHalfOfThemCondemnsNone) {
  Up(6);
  for (uint64_t id : {1, 2, 3}) loads_[{id}].step_us *= 20;
  Pass(600);
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(PaceOf(id), Pace::kFair) << id;
  EXPECT_EQ(watch_.Of({1}).slowness, 1);
}

TEST_F(PaceWatchTest, AShareOfThePoolAtMostIsTakenOut) {
  Up(9);
  for (uint64_t id : {1, 2, 3, 4}) loads_[{id}].step_us *= 20;
  int most = 0;
  for (int second = 0; second < 600; ++second) {
    Pass(1);
    int out = 0;
    for (uint64_t id = 1; id <= 9; ++id) out += watch_.Of({id}).TakesNothing() ? 1 : 0;
    most = std::max(most, out);
  }
  EXPECT_EQ(most, 2) << "a quarter of nine";
}

TEST_F(PaceWatchTest, ShortStepsAreNeverSlow) {
  Up(4);
  for (auto& [id, load] : loads_) load.step_us = kMillisecondUs;
  loads_[{1}].step_us = 49 * kMillisecondUs;
  Pass(600);
  EXPECT_EQ(PaceOf(1), Pace::kFair);
}

TEST_F(PaceWatchTest, AMomentIsNoEvidence) {
  Up(4);
  Pass(10);
  for (int i = 0; i < 50; ++i) {
    loads_[{1}].step_us = 2 * kSecondUs;
    Pass(4);
    loads_[{1}].step_us = 100 * kMillisecondUs;
    Pass(1);
    ASSERT_EQ(PaceOf(1), Pace::kFair);
  }
}

TEST_F(PaceWatchTest, WithoutAnotherInstanceNoneIsTakenOutAndOneThatIsComesBack) {
  Up(4);
  loads_[{1}].step_us *= 20;
  others_ = false;
  Pass(600);
  EXPECT_EQ(PaceOf(1), Pace::kSlow);
  others_ = true;
  SecondsUntil(1, Pace::kSuspect);
  others_ = false;
  Pass(1);
  EXPECT_EQ(PaceOf(1), Pace::kSlow);
  others_ = true;
  SecondsUntil(1, Pace::kAside);
  others_ = false;
  Pass(1);
  EXPECT_EQ(PaceOf(1), Pace::kSlow);
}

TEST_F(PaceWatchTest, OfTwoNobodyKnowsWhichOneIsAsItShouldBe) {
  Up(2);
  loads_[{1}].step_us *= 20;
  Pass(600);
  EXPECT_EQ(PaceOf(1), Pace::kFair);
  EXPECT_EQ(PaceOf(2), Pace::kFair);
}

TEST_F(PaceWatchTest, AnotherKindOfDeviceIsNoPeer) {
  Up(6);
  for (uint64_t id : {1, 2, 3}) {
    kind_of_[{id}] = "cpu";
    loads_[{id}].step_us *= 20;
  }
  for (uint64_t id : {4, 5, 6}) kind_of_[{id}] = "cuda";
  Pass(100);
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(PaceOf(id), Pace::kFair) << id;
  EXPECT_EQ(watch_.Of({1}).peers, 2);
}

TEST_F(PaceWatchTest, APrefillInstanceIsAllowedTwiceTheTime) {
  role_ = Role::kPrefill;
  Up(4);
  loads_[{1}].step_us = loads_[{1}].step_us * 39 / 10;
  Pass(100);
  EXPECT_EQ(PaceOf(1), Pace::kFair);
  loads_[{1}].step_us *= 4;
  SecondsUntil(1, Pace::kSuspect);
}

TEST_F(PaceWatchTest, StepsOfABoundGroupAreNoEvidence) {
  Up(4);
  loads_[{1}].step_us *= 20;
  comparable_ = false;
  Pass(100);
  EXPECT_EQ(PaceOf(1), Pace::kFair);
  EXPECT_EQ(watch_.Of({1}).peers, 0);
}

TEST_F(PaceWatchTest, ASlowOneWithoutRequestsIsFairAgainAfterATime) {
  Up(4);
  loads_[{1}].step_us *= 3;
  SecondsUntil(1, Pace::kSlow);
  loads_[{1}].measures = false;
  EXPECT_EQ(SecondsUntil(1, Pace::kFair), 60);
}

TEST_F(PaceWatchTest, OneThatLeavesIsForgottenAndMakesRoomForAnother) {
  Up(5);
  loads_[{1}].step_us *= 20;
  SecondsUntil(1, Pace::kAside);
  loads_[{2}].step_us *= 20;
  Pass(30);
  EXPECT_EQ(PaceOf(2), Pace::kSlow) << "one of five at a time";
  loads_.erase({1});
  watch_.Forget({1});
  watch_.Forget({77});
  EXPECT_TRUE(watch_.CheckInvariants().ok());
  EXPECT_EQ(PaceOf(1), Pace::kFair);
  SecondsUntil(2, Pace::kSuspect);
}

TEST(PaceWatchOff, AFactorOfZeroSwitchesItOff) {
  PaceWatch off({.slow_factor = 0});
  for (int i = 1; i <= 100; ++i) {
    for (uint64_t id = 1; id <= 4; ++id) {
      WorkerLoad load;
      load.steps = 10 * i;
      load.mean_step_us = id == 1 ? 10 * kSecondUs : 100 * kMillisecondUs;
      load.tokens_per_second = 10;
      EXPECT_EQ(off.Report({id}, {.model = "m"}, load, true, true, i * kSecondUs).pace,
                Pace::kFair);
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
