#include "engine/model/testing/lone_failures.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

// One sequence's step, with what it points into.
struct OwnStep {
  std::vector<int32_t> ids;     // of the whole sequence
  std::vector<int32_t> blocks;  // two
  int64_t history = 0;          // tokens that are in KV already
  int64_t count = 1;
  SamplingParams sampling = {.temperature = 0.7f};
  std::vector<int32_t> prompt, output, next;
  bool sample = true;
  uint64_t token_index = 0;
  int64_t position_error = 0;

  SequenceStep Build() const {
    SequenceStep built;
    built.tokens = std::span(ids).subspan(static_cast<size_t>(history), static_cast<size_t>(count));
    built.position = history + position_error;
    built.block_table = blocks;
    built.sample = sample;
    built.sampling = &sampling;
    built.token_index = token_index;
    built.prompt = prompt;
    built.output = output;
    built.next_tokens = next;
    return built;
  }
};

OwnStep MakeStep(const Engine& engine, int number, int64_t history, int64_t count) {
  OwnStep own;
  for (int64_t i = 0; i < history + count; ++i) {
    own.ids.push_back(static_cast<int32_t>((7 * i + 13 * number + 1) % engine.Spec().vocab_size));
  }
  own.blocks = {2 * number + 1, 2 * number};
  own.history = history;
  own.count = count;
  own.sampling.seed = static_cast<uint64_t>(number);
  return own;
}

// A whole prompt with its logprobs, the end of a sliced one, and two that decode.
std::vector<OwnStep> OrdinarySteps(const Engine& engine) {
  std::vector<OwnStep> steps = {MakeStep(engine, 0, 0, 7), MakeStep(engine, 1, 3, 4),
                                MakeStep(engine, 2, 5, 1), MakeStep(engine, 3, 6, 1)};
  steps[0].next = {steps[0].ids.begin() + 1, steps[0].ids.end()};
  steps[0].next.push_back(-1);
  steps[0].sampling.top_logprobs = 2;
  steps[2].prompt = steps[2].ids;
  steps[2].output = {3, 3, 5};
  steps[2].token_index = 3;
  steps[2].sampling.repetition_penalty = 1.3f;
  steps[2].sampling.top_k = 20;
  steps[3].sampling.temperature = 0;
  return steps;
}

struct Poison {
  std::string why;  // in the status
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  OwnStep step;
  int32_t spoiled = -1;  // a block that must be NaN
};

class Poisons {
 public:
  explicit Poisons(const Engine& engine) : engine_(engine) {}

  template <typename Edit>
  Poison& Add(const std::string& why, Edit edit) {
    Poison poison;
    poison.why = why;
    poison.step = MakeStep(engine_, 4, 3, 2);
    edit(poison.step);
    all_.push_back(std::move(poison));
    return all_.back();
  }

  const std::vector<Poison>& all() const { return all_; }

 private:
  const Engine& engine_;
  std::vector<Poison> all_;
};

Poisons AllPoisons(const Engine& engine, bool nan) {
  const int32_t vocabulary = engine.Spec().vocab_size;
  Poisons poisons(engine);
  poisons.Add("tokens: empty", [](OwnStep& s) { s.count = 0; });
  poisons.Add("tokens[1] = ", [&](OwnStep& s) { s.ids[4] = vocabulary; });
  poisons.Add("prompt[0] = ", [&](OwnStep& s) { s.prompt = {vocabulary}; });
  poisons.Add("output[1] = -1", [](OwnStep& s) { s.output = {1, -1}; });
  poisons.Add("next_tokens: 1 ids", [](OwnStep& s) { s.next = {1}; });
  poisons.Add("position", [&](OwnStep& s) { s.position_error = engine.Spec().max_positions; });
  poisons.Add("block_table: 0 blocks", [](OwnStep& s) { s.blocks.clear(); });
  poisons.Add("", [](OwnStep& s) { s.blocks[0] = -1; });
  poisons.Add("top_p", [](OwnStep& s) { s.sampling.top_p = 0; });
  poisons.Add("leave no token to sample", [&](OwnStep& s) {
    s.sampling.suppressed_until_min_tokens.resize(static_cast<size_t>(vocabulary));
    std::iota(s.sampling.suppressed_until_min_tokens.begin(),
              s.sampling.suppressed_until_min_tokens.end(), 0);
    s.sampling.min_tokens = 1;
  });
  if (nan) {
    Poison& spoiled = poisons.Add("NaN", [](OwnStep&) {});
    spoiled.code = absl::StatusCode::kInternal;
    spoiled.spoiled = spoiled.step.blocks[0];
  }
  return poisons;
}

class Trial {
 public:
  Trial(Engine& engine, const LoneFailureOptions& options) : engine_(engine), options_(options) {}

  std::vector<SequenceResult> Run(const std::vector<const OwnStep*>& steps, int layers_expected) {
    std::vector<SequenceStep> built;
    for (const OwnStep* step : steps) built.push_back(step->Build());
    std::vector<SequenceResult> results;
    int layers = 0;
    StepProgress progress([&](int) { ++layers; });
    const absl::Status status = engine_.Step(built, &progress, &results);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(layers, layers_expected);
    results.resize(steps.size());
    return results;
  }
  // As decode steps are: nobody waits for layers.
  std::vector<SequenceResult> RunUntold(const std::vector<const OwnStep*>& steps) {
    std::vector<SequenceStep> built;
    for (const OwnStep* step : steps) built.push_back(step->Build());
    std::vector<SequenceResult> results;
    const absl::Status status = engine_.Step(built, nullptr, &results);
    EXPECT_TRUE(status.ok()) << status;
    results.resize(steps.size());
    return results;
  }
  void WriteHistory(const OwnStep& own) {
    if (own.history == 0) return;
    OwnStep before = own;
    before.count = own.history;
    before.history = 0;
    before.prompt = before.output = before.next = {};
    before.sample = false;
    EXPECT_TRUE(RunUntold({&before})[0].status.ok());
  }
  void Expect(const SequenceResult& actual, const SequenceResult& expected) const {
    ASSERT_TRUE(actual.status.ok()) << actual.status;
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    ExpectToken(actual.sampled, expected.sampled);
    ASSERT_EQ(actual.prompt_logprobs.size(), expected.prompt_logprobs.size());
    for (size_t i = 0; i < expected.prompt_logprobs.size(); ++i) {
      ExpectToken(actual.prompt_logprobs[i], expected.prompt_logprobs[i]);
    }
  }
  void ExpectFailed(const SequenceResult& result, const Poison& poison) const {
    EXPECT_EQ(result.status.code(), poison.code) << result.status;
    EXPECT_THAT(std::string(result.status.message()), HasSubstr(poison.why));
  }
  int layers() const { return engine_.Spec().kv.num_layers; }

 private:
  void ExpectToken(const SampledToken& actual, const SampledToken& expected) const {
    EXPECT_EQ(actual.token, expected.token);
    ASSERT_EQ(actual.top.size(), expected.top.size());
    if (!options_.exact) return;
    EXPECT_EQ(actual.logprob, expected.logprob);
    for (size_t i = 0; i < expected.top.size(); ++i) {
      EXPECT_EQ(actual.top[i].token, expected.top[i].token);
      EXPECT_EQ(actual.top[i].logprob, expected.top[i].logprob);
    }
  }

  Engine& engine_;
  const LoneFailureOptions& options_;
};

bool IsRefused(const Poison& poison) {
  return poison.spoiled < 0 && poison.why != "leave no token to sample";
}

}  // namespace

void ExpectFailuresStayAlone(Engine& engine, const LoneFailureOptions& options) {
  Trial trial(engine, options);
  const std::vector<OwnStep> ordinary = OrdinarySteps(engine);
  std::vector<SequenceResult> expected;
  for (const OwnStep& own : ordinary) {
    trial.WriteHistory(own);
    expected.push_back(trial.Run({&own}, trial.layers())[0]);
    ASSERT_TRUE(expected.back().status.ok()) << expected.back().status;
  }
  trial.WriteHistory(MakeStep(engine, 4, 3, 2));
  const Poisons poisons = AllPoisons(engine, options.spoil_block != nullptr);
  for (const Poison& poison : poisons.all()) {
    SCOPED_TRACE("poison: " + poison.why);
    if (poison.spoiled >= 0) options.spoil_block(poison.spoiled);
    const OwnStep& bad = poison.step;
    const auto alone = trial.Run({&bad}, IsRefused(poison) ? 0 : trial.layers());
    trial.ExpectFailed(alone[0], poison);
    const auto mixed =
        trial.Run({&ordinary[0], &ordinary[1], &bad, &ordinary[2], &ordinary[3]}, trial.layers());
    trial.ExpectFailed(mixed[2], poison);
    for (const size_t i : {0, 1, 2, 3}) trial.Expect(mixed[i < 2 ? i : i + 1], expected[i]);
    // A decoding one beside others.
    OwnStep last = bad;
    if (last.count == 2 && last.next.empty() && poison.why != "tokens[1] = ") {
      ++last.history;
      --last.count;
    }
    const auto decoding = trial.RunUntold({&last, &ordinary[2], &ordinary[3]});
    trial.ExpectFailed(decoding[0], poison);
    for (const size_t i : {1, 2}) trial.Expect(decoding[i], expected[i + 1]);
  }
  // The blocks of what was poisoned go to an ordinary sequence.
  OwnStep heir = MakeStep(engine, 0, 0, 5);
  const SequenceResult clean = trial.Run({&heir}, trial.layers())[0];
  heir.blocks = MakeStep(engine, 4, 0, 1).blocks;
  trial.Expect(trial.Run({&heir}, trial.layers())[0], clean);
}

}  // namespace skein::engine
