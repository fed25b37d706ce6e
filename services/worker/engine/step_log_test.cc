#include "services/worker/engine/step_log.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

scheduler::RunStep Step(int64_t prompt_tokens, int64_t position, int64_t count, int sequences = 1) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->prompt.resize(static_cast<size_t>(prompt_tokens));
  scheduler::RunStep step;
  for (int i = 0; i < sequences; ++i) {
    step.sequences.push_back({.spec = spec, .position = position, .count = count});
  }
  return step;
}

TEST(StepLog, KeepsOnlyChunksThatRanAlone) {
  StepLog log;
  log.Add(Step(100, 0, 64), 0.5);
  log.Add(Step(100, 64, 36, 2), 1);  // a batch
  log.Add(Step(100, 100, 1), 1);     // a decode token
  log.Add(Step(100, 64, 36), 0.25);
  const std::vector<StepTime> times = log.After(0);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[1].serial, 2u);
  EXPECT_EQ(times[1].history_tokens, 64);
  EXPECT_EQ(times[1].chunk_tokens, 36);
  EXPECT_EQ(times[1].seconds, 0.25);
  EXPECT_EQ(log.After(1).size(), 1u);
  EXPECT_TRUE(log.After(2).empty());
}

// Tokens 16 … 48 of a prompt, dealt to two instances.
scheduler::RunStep RingStepOfTwo() {
  scheduler::RingPart part;
  part.piece.spans = {{{16, 8}, {40, 8}}, {{24, 16}}};
  part.token_end = 48;
  part.tp = 2;
  scheduler::RunStep step = Step(100, 16, 16);
  step.sequences.front().ring = std::make_shared<scheduler::RingPart>(std::move(part));
  return step;
}

TEST(StepLog, KeepsThePiecesOfSeveralInstancesWithTheirShape) {
  StepLog log;
  log.Add(RingStepOfTwo(), 0.5);
  const std::vector<StepTime> times = log.After(0);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].history_tokens, 16);
  EXPECT_EQ(times[0].chunk_tokens, 32) << "those of both";
  EXPECT_EQ(times[0].seconds, 0.5);
  EXPECT_EQ(times[0].instances, 2);
  EXPECT_EQ(times[0].tp, 2);
}

TEST(StepLog, LeavesOutStepsOfBoundGroups) {
  StepLog log;
  scheduler::RunStep step = Step(100, 0, 32);
  step.group.emplace();
  log.Add(step, 0.5);
  EXPECT_TRUE(log.After(0).empty());
}

TEST(StepLog, ForgetsTheOldest) {
  StepLog log(2);
  for (int i = 1; i <= 5; ++i) log.Add(Step(10, 0, i), 1);
  const std::vector<StepTime> times = log.After(0);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].chunk_tokens, 4);
  EXPECT_EQ(times[1].serial, 5u);
}

}  // namespace
}  // namespace skein::services
