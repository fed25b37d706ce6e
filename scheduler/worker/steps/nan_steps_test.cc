#include "scheduler/worker/steps/nan_steps.h"

#include <string>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

const StepResult kNan{.status = absl::InternalError("NaN")};
const StepResult kRefused{.status = absl::InvalidArgumentError("no token left")};
const StepResult kToken{.token = 7, .payload = "p"};
const StepResult kScored{.prompt_logprobs = "l"};
const StepResult kChunk{};

TEST(NanStepsTest, ThreeStepsOfNothingButNanAreDoubtful) {
  NanSteps steps;
  steps.Add({kNan});
  steps.Add({kNan, kNan, kChunk});
  EXPECT_FALSE(steps.Doubtful());
  steps.Add({kRefused, kNan});
  EXPECT_TRUE(steps.Doubtful());
}

TEST(NanStepsTest, ASequenceWithLogitsShowsThatTheEngineWorks) {
  NanSteps steps;
  for (int i = 0; i < 10; ++i) steps.Add({kNan, kToken});
  for (int i = 0; i < 10; ++i) steps.Add({kNan, kScored});
  EXPECT_FALSE(steps.Doubtful());
  steps.Add({kNan});
  steps.Add({kNan});
  steps.Add({kToken});
  steps.Add({kNan});
  EXPECT_FALSE(steps.Doubtful());
}

TEST(NanStepsTest, StepsWithoutLogitsNeitherCountNorClear) {
  NanSteps steps;
  for (int i = 0; i < 2; ++i) {
    steps.Add({kNan});
    steps.Add({kChunk});
    steps.Add({kRefused, kRefused});
  }
  EXPECT_FALSE(steps.Doubtful());
  steps.Add({kNan});
  EXPECT_TRUE(steps.Doubtful());
}

}  // namespace
}  // namespace skein::scheduler
