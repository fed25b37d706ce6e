#include "engine/model/testing/sequence_runner.h"

#include <algorithm>
#include <numeric>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

// One run in progress. `tokens` is prompt and output so far; the first `done` are in KV.
struct Progress {
  GreedyRun* run;
  std::vector<int32_t> tokens;
  size_t done = 0;
  std::vector<int32_t> blocks;

  bool finished() const { return run->output.size() >= static_cast<size_t>(run->tokens_wanted); }
  size_t NextCount() const {
    const size_t left = tokens.size() - done;
    return run->slice_tokens > 0 ? std::min<size_t>(left, run->slice_tokens) : left;
  }
};

SequenceStep NextStep(Progress& progress, const EngineSpec& spec, const SamplingParams& greedy,
                      int32_t* next_block) {
  const size_t count = progress.NextCount();
  const size_t end = progress.done + count;
  while (progress.blocks.size() * spec.kv.block_tokens < end) {
    progress.blocks.push_back((*next_block)++);
  }
  SequenceStep step;
  step.tokens = std::span(progress.tokens).subspan(progress.done, count);
  step.position = static_cast<int64_t>(progress.done);
  step.block_table = progress.blocks;
  step.sample = end == progress.tokens.size();
  step.sampling = &greedy;
  step.token_index = progress.run->output.size();
  step.prompt = progress.run->prompt;
  step.output = progress.run->output;
  return step;
}

}  // namespace

void RunTogether(Engine& engine, const std::vector<GreedyRun*>& runs) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  std::vector<Progress> all;
  for (GreedyRun* run : runs) all.push_back({run, run->prompt, 0, {}});
  int32_t next_block = 0;
  for (int step = 0;; ++step) {
    std::vector<Progress*> active;
    std::vector<SequenceStep> steps;
    bool left = false;
    for (Progress& progress : all) {
      if (progress.finished()) continue;
      left = true;
      if (step < progress.run->first_step) continue;
      active.push_back(&progress);
      steps.push_back(NextStep(progress, engine.Spec(), greedy, &next_block));
    }
    if (!left) return;
    if (active.empty()) continue;
    std::vector<SequenceResult> results;
    const absl::Status status = engine.Step(steps, nullptr, &results);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < active.size(); ++i) {
      Progress& progress = *active[i];
      ASSERT_TRUE(results[i].status.ok()) << results[i].status;
      progress.done += steps[i].tokens.size();
      if (!steps[i].sample) continue;
      progress.tokens.push_back(results[i].sampled.token);
      progress.run->output.push_back(results[i].sampled.token);
    }
  }
}

std::vector<float> LogitsAfter(Engine& engine, const std::vector<int32_t>& prompt) {
  std::vector<int32_t> blocks(engine.Spec().kv.num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  SequenceStep step;
  step.tokens = prompt;
  step.block_table = blocks;
  step.want_logits = true;
  std::vector<SequenceResult> results;
  const absl::Status status = engine.Step({&step, 1}, nullptr, &results);
  EXPECT_TRUE(status.ok()) << status;
  if (!status.ok()) return {};
  EXPECT_TRUE(results[0].status.ok()) << results[0].status;
  return results[0].logits;
}

namespace {

struct Scoring {
  NllRun* run;
  std::vector<int32_t> next;  // next[i] = ids[i + 1], last -1
  size_t done = 0;
  std::vector<int32_t> blocks;
};

SequenceStep NextSlice(Scoring& scoring, const EngineSpec& spec, int32_t* blocks_left) {
  const size_t left = scoring.next.size() - scoring.done;
  const auto slice = static_cast<size_t>(scoring.run->slice_tokens);
  const size_t count = slice > 0 ? std::min(slice, left) : left;
  while (scoring.blocks.size() * spec.kv.block_tokens < scoring.done + count) {
    scoring.blocks.push_back(--*blocks_left);
  }
  SequenceStep step;
  step.tokens = std::span(scoring.run->ids).subspan(scoring.done, count);
  step.position = static_cast<int64_t>(scoring.done);
  step.block_table = scoring.blocks;
  step.next_tokens = std::span(scoring.next).subspan(scoring.done, count);
  scoring.done += count;
  return step;
}

}  // namespace

void ScoreTogether(Engine& engine, const std::vector<NllRun*>& runs) {
  std::vector<Scoring> all;
  for (NllRun* run : runs) {
    all.push_back({run, {run->ids.begin() + 1, run->ids.end()}, 0, {}});
    all.back().next.push_back(-1);
    run->nll = 0.0;
  }
  auto blocks_left = static_cast<int32_t>(engine.Spec().kv.num_blocks);
  for (int step = 0;; ++step) {
    std::vector<NllRun*> active;
    std::vector<SequenceStep> steps;
    bool left = false;
    for (Scoring& scoring : all) {
      if (scoring.done == scoring.next.size()) continue;
      left = true;
      if (step < scoring.run->first_step) continue;
      active.push_back(scoring.run);
      steps.push_back(NextSlice(scoring, engine.Spec(), &blocks_left));
    }
    if (!left) return;
    if (steps.empty()) continue;
    std::vector<SequenceResult> results;
    const absl::Status status = engine.Step(steps, nullptr, &results);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < active.size(); ++i) {
      ASSERT_TRUE(results[i].status.ok()) << results[i].status;
      for (const SampledToken& token : results[i].prompt_logprobs) {
        if (token.token < 0) continue;
        active[i]->nll -= token.logprob / static_cast<double>(active[i]->ids.size() - 1);
      }
    }
  }
}

double MeanNll(Engine& engine, const std::vector<int32_t>& ids, int slice_tokens) {
  NllRun run{.ids = ids, .slice_tokens = slice_tokens};
  ScoreTogether(engine, {&run});
  return run.nll;
}

}  // namespace skein::engine
