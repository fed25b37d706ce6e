#include "scheduler/simulator/formations/group_record.h"

#include <numeric>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(GroupRecord, KeepsTheOutcomeOfEachRequest) {
  GroupRecord record(2);
  record.NoteRefused(1);
  record.NoteOutput({.request = 0}, 0, kSecondUs);
  record.NoteOutput({.request = 0}, 1, 5 * kSecondUs);
  record.NoteOutput({.request = 0}, 2, 6 * kSecondUs);
  const GroupOutcome& outcome = record.outcomes()[0];
  EXPECT_EQ(outcome.first_token_us, kSecondUs);
  EXPECT_EQ(outcome.last_token_us, 6 * kSecondUs);
  EXPECT_EQ(outcome.longest_gap_us, 4 * kSecondUs);
  EXPECT_EQ(outcome.made, 3);
  EXPECT_TRUE(record.outcomes()[1].refused);
  EXPECT_EQ(record.end_us(), 6 * kSecondUs);
  EXPECT_EQ(record.output_by_second(), (std::vector<int64_t>{0, 1, 0, 0, 0, 1, 1}));
}

TEST(GroupRecord, ARequestStartsWhenItsFirstTokensEnterAStep) {
  const std::vector<GroupRequest> requests(2, {.prompt_tokens = 100, .output_tokens = 2});
  GroupRecord record(2);
  SequenceBatch batch(&requests, {.step_tokens = 100, .sequences = 8});
  for (size_t i = 0; i < 2; ++i) batch.Add(i, 0);
  const auto step = [&](TimeUs now) {
    batch.Admit([](size_t) { return true; });
    batch.BeginStep();
    record.NoteStarted(batch, now);
    batch.EndStep([](const BatchSequence&, int64_t) {});
  };
  step(10);
  step(20);
  EXPECT_EQ(record.outcomes()[0].started_us, 10);
  EXPECT_EQ(record.outcomes()[1].started_us, 20);
}

TEST(GroupRecord, AddsUpStepsByKindAndByWhatTheirTimeWentTo) {
  GroupRecord record(0);
  record.NoteStep(StepKind::kTp, {.products_s = 1, .collectives_s = 2});
  record.NoteStep(StepKind::kTp, {.attention_s = 3, .software_s = 4});
  record.NoteStep(StepKind::kSp, {.products_s = 5});
  record.NoteShift();
  record.NoteTokens(7, kSecondUs / 2);
  record.NoteTokens(2, kSecondUs / 2);
  const GroupRecord::Steps& tp = record.steps()[static_cast<size_t>(StepKind::kTp)];
  EXPECT_EQ(tp.count, 2);
  EXPECT_EQ(tp.time.Total(), 10);
  EXPECT_EQ(tp.time.collectives_s, 2);
  EXPECT_EQ(record.steps()[static_cast<size_t>(StepKind::kOwn)].count, 0);
  EXPECT_EQ(record.shifts(), 1);
  EXPECT_EQ(record.tokens_by_second(), (std::vector<int64_t>{9}));
}

}  // namespace
}  // namespace skein::scheduler
