#include "scheduler/simulator/formations/sequence_batch.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

class SequenceBatchTest : public testing::Test {
 protected:
  // Runs a step and gives its work; counts made tokens.
  StepWork Step() {
    batch_.Admit([&](size_t request) { return request != refused_; });
    const StepWork work = batch_.BeginStep();
    batch_.EndStep([&](const BatchSequence& sequence, int64_t index) {
      EXPECT_EQ(made_[sequence.request]++, index);
    });
    return work;
  }

  const std::vector<GroupRequest> requests_ = {
      {.prompt_tokens = 25, .output_tokens = 3},
      {.prompt_tokens = 5, .output_tokens = 1},
      {.prompt_tokens = 8, .output_tokens = 2, .priority = 1},
  };
  SequenceBatch batch_{&requests_, {.step_tokens = 10, .sequences = 2}};
  std::vector<int64_t> made_ = {0, 0, 0};
  size_t refused_ = 99;
};

TEST_F(SequenceBatchTest, PromptsRunInSlicesBesideDecode) {
  batch_.Add(0, 0);
  EXPECT_EQ(Step().tokens, 10);
  EXPECT_EQ(Step().tokens, 10);
  batch_.Add(1, 0);
  const StepWork third = Step();  // 5 of the first prompt, 5 of the second
  EXPECT_EQ(third.tokens, 10);
  EXPECT_EQ(third.sequences, 2);
  EXPECT_EQ(third.prompt_pairs, 5 * 20 + 15 + 15);
  EXPECT_EQ(made_, (std::vector<int64_t>{1, 1, 0}));
  const StepWork fourth = Step();  // the second has ended
  EXPECT_EQ(fourth.tokens, 1);
  EXPECT_EQ(fourth.decode_context, 25);
  Step();
  EXPECT_TRUE(batch_.Idle());
  EXPECT_EQ(made_, (std::vector<int64_t>{3, 1, 0}));
}

TEST_F(SequenceBatchTest, UrgentRequestsEnterFirstAndTheBatchHasALimit) {
  batch_.Add(0, 0);
  batch_.Add(1, 0);
  batch_.Add(2, 0);
  Step();
  ASSERT_EQ(batch_.running().size(), 2u);
  EXPECT_EQ(batch_.running()[0].request, 2u);
  EXPECT_EQ(batch_.running()[1].request, 0u);
  EXPECT_EQ(batch_.waiting(), 1u);
}

TEST_F(SequenceBatchTest, NobodyOvertakesOneThatDoesNotFit) {
  refused_ = 0;
  batch_.Add(0, 0);
  batch_.Add(1, 0);
  EXPECT_EQ(Step().tokens, 0);
  refused_ = 99;
  EXPECT_EQ(Step().tokens, 10);
}

// A sequence that was taken back computes its prompt and its output anew, and goes on after it.
TEST_F(SequenceBatchTest, GoesOnWithTheNextTokenElsewhere) {
  batch_.Add(2, 0);
  Step();
  EXPECT_EQ(made_[2], 1);
  EXPECT_EQ(batch_.held_tokens(), 8);
  const auto taken = batch_.TakeAll();
  ASSERT_EQ(taken, (std::vector<std::pair<size_t, int64_t>>{{2, 1}}));
  EXPECT_TRUE(batch_.Idle());
  batch_.Add(2, 1);
  EXPECT_EQ(batch_.tokens_to_compute(), 9);
  EXPECT_EQ(Step().tokens, 9);
  EXPECT_EQ(made_[2], 2);
  EXPECT_TRUE(batch_.Idle());
}

}  // namespace
}  // namespace skein::scheduler
