#include "scheduler/simulator/pipeline_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

double A100Seconds(int64_t history, int64_t tokens) {
  return Llama3_8bA100().Seconds(1, history, tokens);
}
// Attention costs nothing: all slices of one size take the same time.
double Linear(int64_t /*history*/, int64_t tokens) { return 1e-4 * static_cast<double>(tokens); }

TEST(PipelineSlices, FixedOnesAreEqualButTheLast) {
  const PipelineOptions options = PipelineOptions::Fixed(4);
  EXPECT_EQ(PipelineSlices(4096, options, A100Seconds), (std::vector<int64_t>{4096}));
  EXPECT_EQ(PipelineSlices(10'000, options, A100Seconds), (std::vector<int64_t>{4096, 4096, 1808}));
  EXPECT_EQ(PipelineSlices(1, options, A100Seconds), (std::vector<int64_t>{1}));
}

TEST(PipelineSlices, DynamicOnesShrinkToAFourth) {
  const PipelineOptions options = PipelineOptions::Dynamic(4);
  const std::vector<int64_t> slices = PipelineSlices(1'000'000, options, A100Seconds);
  EXPECT_EQ(slices.front(), 12288);
  EXPECT_EQ(std::accumulate(slices.begin(), slices.end(), int64_t{0}), 1'000'000);
  for (size_t i = 1; i < slices.size(); ++i) EXPECT_LE(slices[i], slices[i - 1]) << i;
  for (size_t i = 0; i + 1 < slices.size(); ++i) {
    EXPECT_EQ(slices[i] % 64, 0) << i;
    EXPECT_GE(slices[i], 12288 / 4) << i;
  }
  // Where attention costs nothing there is nothing to even out.
  for (const int64_t tokens : PipelineSlices(122'880, options, Linear)) EXPECT_EQ(tokens, 12288);
}

// With smooth 1 each slice takes the time of the first, to the token.
TEST(PipelineSlices, ASmoothFactorOfOneEvensTheTimes) {
  PipelineOptions options = PipelineOptions::Dynamic(4);
  options.smooth = 1;
  options.multiple = 1;
  const std::vector<int64_t> slices = PipelineSlices(100'000, options, A100Seconds);
  int64_t history = 0;
  for (size_t i = 0; i + 1 < slices.size(); ++i) {
    if (slices[i] == 12288 / 4) break;  // the least
    EXPECT_LE(A100Seconds(history, slices[i]), A100Seconds(0, 12288)) << i;
    if (i > 0) {
      EXPECT_GT(A100Seconds(history, slices[i] + 1), A100Seconds(0, 12288)) << i;
    }
    history += slices[i];
  }
}

// (P - 1 + M) steps of a stage for M equal slices: the bubble ratio of SGLang's page is
// (P - 1) / (P - 1 + M).
TEST(Pipeline, EqualSlicesMeetTheFormulaOfTheBubbles) {
  for (const int stages : {1, 2, 4, 8}) {
    const PrefillRun run =
        RunPipelines({{1, 40'960, 1}}, stages, PipelineOptions::Fixed(stages), Linear);
    const double step_s = Linear(0, 4096) / stages;
    EXPECT_NEAR(run.end_s - 1, (stages - 1 + 10) * step_s, 1e-9) << stages;
    EXPECT_NEAR(run.busy_instance_s, Linear(0, 40'960), 1e-9) << stages;
    EXPECT_EQ(run.chunks, 10);
  }
}

TEST(Pipeline, TheLargestStageSetsThePace) {
  PipelineOptions options = PipelineOptions::Fixed(2);
  options.shares = {0.25, 0.75};
  const PrefillRun run = RunPipelines({{0, 40'960, 1}}, 2, options, Linear);
  EXPECT_NEAR(run.end_s, 0.25 * Linear(0, 4096) + 0.75 * Linear(0, 40'960), 1e-9);
}

TEST(Pipeline, APromptFollowsTheOneBeforeIt) {
  const PrefillRun run =
      RunPipelines({{0, 4096, 1}, {0, 4096, 1}}, 4, PipelineOptions::Fixed(4), Linear);
  const double step_s = Linear(0, 4096) / 4;
  EXPECT_NEAR(run.outcomes[0].end_s, 4 * step_s, 1e-9);
  EXPECT_NEAR(run.outcomes[1].start_s, step_s, 1e-9);
  EXPECT_NEAR(run.outcomes[1].end_s, 5 * step_s, 1e-9);
}

TEST(Pipeline, PipelinesStandSideBySideAndTheRestIsUnused) {
  std::vector<std::vector<int>> instances;
  RunPipelines({{0, 4096, 1}, {0, 4096, 1}, {0, 4096, 1}}, 11, PipelineOptions::Fixed(4), Linear,
               [&](size_t, const ChunkPlan& chunk) { instances.push_back(chunk.instances); });
  EXPECT_EQ(instances, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}}));
}

// Random prompts against the recurrence written out, stage by stage over all slices of a pipeline.
TEST(Pipeline, StagesRunOneSliceAtATimeInOrder) {
  Random random(11);
  for (int round = 0; round < 30; ++round) {
    const int stages = 1 + static_cast<int>(random.Below(6));
    const PipelineOptions options =
        round % 2 == 0 ? PipelineOptions::Fixed(stages) : PipelineOptions::Dynamic(stages);
    std::vector<SimRequest> requests;
    double arrival_s = 0;
    for (int r = 0; r < 20; ++r) {
      arrival_s += random.Exponential(2);
      requests.push_back({arrival_s, 1 + static_cast<int64_t>(random.Below(100'000)), 1});
    }
    const PrefillRun run = RunPipelines(requests, stages, options, A100Seconds);
    std::vector<double> ready_s;  // of each slice, at the next stage
    std::vector<double> work_s;
    std::vector<size_t> of;
    for (size_t r = 0; r < requests.size(); ++r) {
      int64_t history = 0;
      for (const int64_t tokens : PipelineSlices(requests[r].prompt_tokens, options, A100Seconds)) {
        ready_s.push_back(requests[r].arrival_s);
        work_s.push_back(A100Seconds(history, tokens) / stages);
        of.push_back(r);
        history += tokens;
      }
    }
    for (int stage = 0; stage < stages; ++stage) {
      double free_s = 0;
      for (size_t k = 0; k < ready_s.size(); ++k) {
        free_s = ready_s[k] = std::max(free_s, ready_s[k]) + work_s[k];
      }
    }
    for (size_t k = 0; k < of.size(); ++k) {
      if (k + 1 < of.size() && of[k + 1] == of[k]) continue;
      EXPECT_NEAR(run.outcomes[of[k]].end_s, ready_s[k], 1e-9) << round;
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
