#include "scheduler/jobs/job_core.h"

#include <gtest/gtest.h>

namespace skein::scheduler::jobs {
namespace {

constexpr ClusterLoad kIdle{.instances = 50, .waiting = 0, .free_kv = 1};

// A core whose settling is over and that sees an idle cluster.
class JobCoreTest : public ::testing::Test {
 protected:
  JobCoreTest() {
    Do(JobTick{});
    now_ += config_.settle_us;
    Do(LoadSeen{kIdle});
  }

  std::vector<JobEffect> Do(const JobEvent& event) {
    auto effects = core_.Handle(event, now_);
    const absl::Status status = core_.CheckInvariants();
    EXPECT_TRUE(status.ok()) << status;
    return effects;
  }
  template <class Effect>
  static std::vector<Effect> Of(const std::vector<JobEffect>& effects) {
    std::vector<Effect> found;
    for (const JobEffect& effect : effects) {
      if (const auto* one = std::get_if<Effect>(&effect)) found.push_back(*one);
    }
    return found;
  }
  static std::vector<LineInfo> Lines(uint64_t count) {
    std::vector<LineInfo> lines;
    lines.reserve(count);
    for (uint64_t line = 1; line <= count; ++line) lines.push_back({line, line, 100});
    return lines;
  }
  // A checked job.
  std::vector<JobEffect> Add(uint64_t job, uint64_t lines, TimeUs expires = kNever) {
    return Do(AddJob{.job = job, .expires = expires, .checked = true, .lines = Lines(lines)});
  }
  static std::vector<LineKey> Given(const std::vector<JobEffect>& effects) {
    const auto given = Of<GiveLine>(effects);
    std::vector<LineKey> keys;
    keys.reserve(given.size());
    for (const GiveLine& one : given) keys.push_back(one.key);
    return keys;
  }
  std::vector<JobEffect> Answer(uint64_t stream, LineKey key, uint64_t payload = 0) {
    return Do(LineAnswered{stream, key, true, {10, 4, 5}, payload});
  }
  JobProgress Progress(uint64_t job) { return core_.Snapshot(now_).jobs.at(job); }

  JobCoreConfig config_;
  TimeUs now_ = 0;
  JobCore core_{config_};
};

TEST_F(JobCoreTest, ChecksTheInputBeforeItGivesLines) {
  Do(RouterConnected{1, 11, 4, {}});
  const auto effects = Do(AddJob{.job = 1});
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<CheckInput>(effects[0]).job, 1u);
  EXPECT_EQ(Given(Do(JobChecked{1, Lines(2)})), (std::vector<LineKey>{{1, 1}, {1, 2}}));
}

TEST_F(JobCoreTest, AJobEndsWhenItsLastResultIsKept) {
  Do(RouterConnected{1, 11, 4, {}});
  EXPECT_EQ(Given(Add(1, 2)).size(), 2u);
  const auto kept = Of<KeepResult>(Answer(1, {1, 1}, 77));
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].payload, 77u);
  EXPECT_TRUE(Of<AcknowledgeLine>(Answer(1, {1, 2})).empty()) << "it is not kept yet";
  EXPECT_EQ(Of<AcknowledgeLine>(Do(ResultKept{{1, 1}})).size(), 1u);
  EXPECT_EQ(Progress(1).counts.completed, 1u);
  const auto end = Of<EndJob>(Do(ResultKept{{1, 2}}));
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].how, JobEnd::kCompleted);
  EXPECT_EQ(Progress(1).counts, (LineCounts{2, 0, {20, 8, 10}}));
  Do(JobGone{1});
  EXPECT_TRUE(core_.Snapshot(now_).jobs.empty());
}

TEST_F(JobCoreTest, LinesWaitUntilTheyAreGivenOrTheJobEnds) {
  Do(AddJob{.job = 1});
  EXPECT_EQ(core_.Waiting(1), 0) << "its input is not checked";
  Do(JobChecked{1, Lines(5)});
  EXPECT_EQ(core_.Waiting(1), 5);
  Do(RouterConnected{1, 11, 2, {}});
  EXPECT_EQ(core_.Waiting(1), 3);
  Do(CancelJob{1});
  EXPECT_EQ(core_.Waiting(1), 0);
  EXPECT_EQ(core_.Waiting(2), 0) << "there is no such job";
}

TEST_F(JobCoreTest, AJobWithAllItsResultsEndsWhenItIsLoaded) {
  EXPECT_EQ(Of<EndJob>(Add(1, 0)).size(), 1u);
  EXPECT_EQ(Of<EndJob>(Do(AddJob{.job = 2, .end = JobEnd::kCancelled})).at(0).how,
            JobEnd::kCancelled);
}

TEST_F(JobCoreTest, TheJobThatEndsFirstIsComputedFirst) {
  Do(StoreStands{false});
  Do(RouterConnected{1, 11, 3, {}});
  Add(1, 2, now_ + 100 * kSecondUs);
  Add(2, 2, now_ + 50 * kSecondUs);
  const auto given = Of<GiveLine>(Do(StoreStands{true}));
  ASSERT_EQ(given.size(), 3u);
  EXPECT_EQ(given[0].key, (LineKey{2, 1}));
  EXPECT_EQ(given[0].within_us, 50 * kSecondUs);
  EXPECT_EQ(given[2].key, (LineKey{1, 1}));
}

TEST_F(JobCoreTest, NoLineIsGivenBeforeRoutersHadTimeToCome) {
  JobCore core{config_};
  core.Handle(LoadSeen{kIdle}, 0);
  core.Handle(RouterConnected{1, 11, 4, {}}, 0);
  EXPECT_TRUE(core.Handle(AddJob{.job = 1, .checked = true, .lines = Lines(1)}, 0).empty());
  EXPECT_EQ(core.NextDeadline(), config_.settle_us);
  // One comes back with the line: it is not given again.
  EXPECT_TRUE(core.Handle(RouterConnected{2, 12, 4, {{1, 1}}}, 1).empty());
  EXPECT_TRUE(core.Handle(JobTick{}, config_.settle_us).empty());
  EXPECT_EQ(core.Snapshot(0).in_flight, 1);
}

TEST_F(JobCoreTest, ASilentRoutersLinesGoToAnother) {
  Do(RouterConnected{1, 11, 2, {}});
  EXPECT_EQ(Given(Add(1, 2)).size(), 2u);
  Do(RouterConnected{2, 12, 2, {}});
  now_ += config_.lease_us - 1;
  Do(RouterSpoke{2});
  EXPECT_TRUE(Given(Do(JobTick{})).empty());
  EXPECT_EQ(core_.NextDeadline(), now_ + 1);
  now_ += 1;
  const auto given = Of<GiveLine>(Do(JobTick{}));
  ASSERT_EQ(given.size(), 2u);
  EXPECT_EQ(given[0].stream, 2u);
  // The first one answers all the same: its answer counts, and the other one is told.
  const auto effects = Answer(1, {1, 1});
  ASSERT_EQ(Of<WithdrawLine>(effects).size(), 1u);
  EXPECT_EQ(Of<WithdrawLine>(effects)[0].stream, 2u);
  EXPECT_EQ(Of<KeepResult>(effects).size(), 1u);
}

TEST_F(JobCoreTest, ARouterWhoseStreamBrokeLosesItsLinesSoonerThanASilentOne) {
  Do(RouterConnected{1, 11, 2, {}});
  EXPECT_EQ(Given(Add(1, 2)).size(), 2u);
  Do(RouterConnected{2, 12, 2, {}});
  Do(RouterDisconnected{1});
  now_ += config_.away_us - 1;
  EXPECT_TRUE(Given(Do(JobTick{})).empty()) << "it may come back";
  EXPECT_EQ(core_.NextDeadline(), now_ + 1);
  now_ += 1;
  EXPECT_EQ(Given(Do(JobTick{})).size(), 2u);
}

TEST_F(JobCoreTest, TheSecondAnswerIsAcknowledgedWhenTheFirstIsKept) {
  Do(RouterConnected{1, 11, 2, {}});
  Add(1, 1);
  Do(RouterConnected{2, 12, 2, {}});
  Answer(1, {1, 1}, 5);
  const auto second = Answer(2, {1, 1}, 6);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(std::get<DropResult>(second[0]).payload, 6u);
  EXPECT_EQ(Of<AcknowledgeLine>(Do(ResultKept{{1, 1}})).size(), 2u);
  // A third one, when the job is about to end.
  const auto third = Answer(2, {1, 1}, 7);
  EXPECT_EQ(Of<DropResult>(third).size(), 1u);
  EXPECT_EQ(Of<AcknowledgeLine>(third).size(), 1u);
  EXPECT_EQ(Progress(1).counts.completed, 1u);
}

TEST_F(JobCoreTest, ARouterThatComesBackKeepsWhatItHolds) {
  Do(RouterConnected{1, 11, 3, {}});
  EXPECT_EQ(Given(Add(1, 3)).size(), 3u);
  Do(RouterDisconnected{1});
  EXPECT_EQ(core_.Snapshot(now_).in_flight, 3);
  // It holds line 1, one of a job that is gone, and has lost the others.
  const auto effects = Do(RouterConnected{2, 11, 3, {{1, 1}, {9, 1}}});
  EXPECT_EQ(Given(effects), (std::vector<LineKey>{{1, 2}, {1, 3}}));
  ASSERT_EQ(Of<WithdrawLine>(effects).size(), 1u);
  EXPECT_EQ(Of<WithdrawLine>(effects)[0].key, (LineKey{9, 1}));
  EXPECT_TRUE(core_.Gives(2, {1, 1}));
  EXPECT_FALSE(core_.Gives(1, {1, 1}));
}

TEST_F(JobCoreTest, ADrainingRouterGetsNothingAndKeepsItsLines) {
  Do(RouterConnected{1, 11, 1, {}});
  Add(1, 2);
  EXPECT_TRUE(Given(Do(RouterConnected{2, 11, 0, {{1, 1}}})).empty());
  EXPECT_TRUE(core_.Gives(2, {1, 1}));
}

TEST_F(JobCoreTest, AReturnedLineIsGivenAgain) {
  Do(RouterConnected{1, 11, 1, {}});
  Add(1, 1);
  EXPECT_TRUE(Do(LineReturned{1, {1, 1}}).empty()) << "at once it would fail again";
  EXPECT_TRUE(Do(LineReturned{1, {1, 2}}).empty());
  EXPECT_TRUE(Do(LineReturned{5, {1, 1}}).empty());
  EXPECT_EQ(core_.NextDeadline(), now_ + config_.pass_us);
  now_ += config_.pass_us;
  EXPECT_EQ(Given(Do(JobTick{})), (std::vector<LineKey>{{1, 1}}));
}

TEST_F(JobCoreTest, AJobThatNobodyServesDoesNotKeepTheRoomFromOthers) {
  Do(RouterConnected{1, 11, 3, {}});
  Add(1, 5, now_ + 50 * kSecondUs);
  EXPECT_EQ(Given(Add(2, 6, now_ + 100 * kSecondUs)).size(), 0u) << "the first one has all room";
  for (const uint64_t line : {1, 2, 3}) {
    EXPECT_EQ(Given(Do(LineReturned{1, {1, line}})), (std::vector<LineKey>{{2, line}}));
  }
  // After a while one of its lines is tried; with every failure later.
  now_ += config_.pass_us;
  Do(JobTick{});
  EXPECT_EQ(Given(Answer(1, {2, 1})), (std::vector<LineKey>{{1, 1}}));
  EXPECT_EQ(Given(Answer(1, {2, 2})), (std::vector<LineKey>{{2, 4}})) << "one at a time";
  EXPECT_EQ(Given(Do(LineReturned{1, {1, 1}})), (std::vector<LineKey>{{2, 5}}));
  now_ += config_.pass_us;
  EXPECT_EQ(Given(Answer(1, {2, 3})), (std::vector<LineKey>{{2, 6}}));
  now_ += config_.pass_us;
  EXPECT_EQ(Given(Answer(1, {2, 4})), (std::vector<LineKey>{{1, 1}}));
  // The first answer ends it.
  Answer(1, {2, 5});
  EXPECT_EQ(Given(Answer(1, {1, 1})), (std::vector<LineKey>{{1, 2}, {1, 3}}));
}

TEST_F(JobCoreTest, AJobWhoseInputCannotBeReadEndsWhenItsTimeIsUp) {
  Do(AddJob{.job = 1, .expires = now_ + kSecondUs});
  EXPECT_EQ(core_.NextDeadline(), now_ + kSecondUs);
  now_ += kSecondUs;
  const auto end = Of<EndJob>(Do(JobTick{}));
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].how, JobEnd::kExpired);
  EXPECT_TRUE(Do(JobChecked{1, Lines(2)}).empty()) << "it came too late";
}

TEST_F(JobCoreTest, CancelWithdrawsWhatRunsAndWaitsForWhatIsBeingKept) {
  Do(RouterConnected{1, 11, 2, {}});
  Add(1, 3);
  Answer(1, {1, 1});
  const auto effects = Do(CancelJob{1});
  EXPECT_EQ(Of<WithdrawLine>(effects).size(), 2u);
  EXPECT_TRUE(Of<EndJob>(effects).empty());
  EXPECT_EQ(Of<AcknowledgeLine>(Answer(1, {1, 2})).size(), 1u) << "it came too late";
  const auto end = Of<EndJob>(Do(ResultKept{{1, 1}}));
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].how, JobEnd::kCancelled);
  EXPECT_TRUE(Do(CancelJob{1}).empty());
}

TEST_F(JobCoreTest, AJobThatIsCancelledInItsCheckEndsAfterIt) {
  Do(AddJob{.job = 1});
  EXPECT_TRUE(Do(CancelJob{1}).empty());
  EXPECT_EQ(Of<EndJob>(Do(JobChecked{1, Lines(3)})).size(), 1u);
}

TEST_F(JobCoreTest, AJobExpiresAtTheEndOfItsWindow) {
  Do(RouterConnected{1, 11, 1, {}});
  Add(1, 2, now_ + 10 * kSecondUs);
  EXPECT_EQ(core_.NextDeadline(), now_ + 10 * kSecondUs);
  now_ += 10 * kSecondUs;
  const auto effects = Do(JobTick{});
  EXPECT_EQ(Of<WithdrawLine>(effects).size(), 1u);
  EXPECT_EQ(Of<EndJob>(effects).at(0).how, JobEnd::kExpired);
}

TEST_F(JobCoreTest, SaysEarlyThatAJobWillBeLate) {
  Do(RouterConnected{1, 11, 1, {}});
  Add(1, 10, now_ + 50 * kSecondUs);
  for (uint64_t line = 1; line <= 2; ++line) {
    now_ += 10 * kSecondUs;  // and 8 lines are left
    Answer(1, {1, line});
    Do(ResultKept{{1, line}});
  }
  const JobProgress progress = Progress(1);
  EXPECT_NEAR(progress.left_s, 80, 1);
  EXPECT_TRUE(progress.late);
  EXPECT_EQ(progress.left, 8);
}

TEST_F(JobCoreTest, GivesNothingWhileTheStoreTakesNothing) {
  Do(StoreStands{false});
  Do(RouterConnected{1, 11, 1, {}});
  EXPECT_TRUE(Given(Add(1, 1)).empty());
  EXPECT_EQ(Given(Do(StoreStands{true})).size(), 1u);
}

TEST_F(JobCoreTest, GivesNoMoreThanOnlineTrafficLeaves) {
  Do(RouterConnected{1, 11, 1000, {}});
  EXPECT_EQ(Given(Add(1, 500)).size(), 100u);
  Do(LoadSeen{{.instances = 50, .waiting = 5, .free_kv = 0}});
  EXPECT_EQ(core_.Snapshot(now_).limit, 50);
  EXPECT_TRUE(Given(Answer(1, {1, 1})).empty());
}

}  // namespace
}  // namespace skein::scheduler::jobs
