// The conformance suite of StepEngine, over the emulated engine: what a plan gives is what the
// synchronous engine gives for the same sequences.
#include "engine/stepping/step_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <future>
#include <mutex>
#include <numeric>

#include "engine/emulated/emulated_engine.h"
#include "engine/emulated/faulty_engine.h"
#include "engine/sampling/seen_ids.h"
#include "engine/stepping/testing/polled_engine.h"

namespace skein::engine {
namespace {

constexpr int kLayers = 3;

std::unique_ptr<EmulatedEngine> Emulated(const EmulatedTimes& times = {}) {
  return *EmulatedEngine::Create({.kv = {{.num_layers = kLayers,
                                          .kv_heads = 1,
                                          .head_dim = 4,
                                          .block_tokens = 4,
                                          .dtype = DType::kF32},
                                         16},
                                  .vocab_size = 1000,
                                  .max_positions = 64,
                                  .times = times});
}

std::shared_ptr<const SamplingParams> Greedy() {
  return std::make_shared<const SamplingParams>(SamplingParams{.temperature = 0.0f});
}

std::shared_ptr<const std::vector<int32_t>> Tokens(size_t count, int32_t first) {
  auto tokens = std::make_shared<std::vector<int32_t>>(count);
  std::iota(tokens->begin(), tokens->end(), first);
  return tokens;
}

// Tells when a step has completed.
class Signal {
 public:
  void Raise() {
    {
      std::lock_guard lock(mu_);
      ++raised_;
    }
    wake_.notify_one();
  }
  void Await() {
    std::unique_lock lock(mu_);
    wake_.wait(lock, [this] { return raised_ > 0; });
    --raised_;
  }

 private:
  std::mutex mu_;
  std::condition_variable wake_;
  int raised_ = 0;
};

class StepEngineTest : public ::testing::TestWithParam<StepsRun> {
 protected:
  StepEngineTest() { Over(emulated_.get()); }
  void Over(Engine* engine) { engine_ = std::make_unique<PolledEngine>(engine, GetParam()); }
  SequenceHandle Admit(std::shared_ptr<const std::vector<int32_t>> prompt,
                       std::shared_ptr<const SamplingParams> sampling = Greedy()) {
    const auto handle =
        engine_->Admit({.prompt = std::move(prompt), .sampling = std::move(sampling)});
    EXPECT_TRUE(handle.ok()) << handle.status();
    return *handle;
  }
  void Launch(StepPlan plan) {
    plan.completed = [this](bool) { signal_.Raise(); };
    engine_->Launch(std::move(plan));
  }
  CompletedStep Run(StepPlan plan) {
    Launch(std::move(plan));
    CompletedStep completed = Await();
    EXPECT_FALSE(engine_->Poll().has_value()) << "a step completes once";
    return completed;
  }
  // The second is launched while the first runs, as far as there is a thread.
  std::array<CompletedStep, 2> RunAhead(StepPlan first, StepPlan second) {
    std::promise<void> launched;
    if (GetParam() == StepsRun::kOnOwnThread) {
      first.layer_queued = [&launched](int layer) {
        if (layer == 0) launched.get_future().wait();
      };
    }
    Launch(std::move(first));
    Launch(std::move(second));
    launched.set_value();
    CompletedStep one = Await();
    return {std::move(one), Await()};
  }
  CompletedStep Await() {
    std::optional<CompletedStep> completed;
    while (!(completed = engine_->Poll()).has_value() && GetParam() == StepsRun::kOnOwnThread) {
      signal_.Await();
    }
    EXPECT_TRUE(completed.has_value());
    return completed.value_or(CompletedStep{});
  }

  Signal signal_;
  std::unique_ptr<EmulatedEngine> emulated_ = Emulated();
  FaultyEngine faulty_{Emulated(), {.nan_token = 13}};
  std::unique_ptr<StepEngine> engine_;
};

TEST_P(StepEngineTest, GivesWhatTheEngineGives) {
  const auto prompt = Tokens(6, 10);
  const std::vector<BlockId> blocks = {{3}, {5}};
  const auto twin = Emulated();
  std::vector<SequenceResult> expected;
  const auto sampling = Greedy();
  SequenceStep step;
  step.tokens = *prompt;
  step.block_table = NumbersOf(blocks);
  step.sample = true;
  step.sampling = sampling.get();
  step.prompt = *prompt;
  ASSERT_TRUE(twin->Step({&step, 1}, nullptr, &expected).ok());

  const SequenceHandle sequence = Admit(prompt);
  StepPlan plan{.number = 7};
  plan.sequences = {{.sequence = sequence, .count = 6, .blocks = blocks, .sample = true}};
  std::vector<int> layers;
  plan.layer_queued = [&layers](int layer) { layers.push_back(layer); };
  const CompletedStep completed = Run(std::move(plan));
  EXPECT_EQ(completed.number, 7u);
  ASSERT_TRUE(completed.status.ok()) << completed.status;
  ASSERT_EQ(completed.results.size(), 1u);
  EXPECT_EQ(completed.results[0].sampled.token, expected[0].sampled.token);
  EXPECT_EQ(layers, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(completed.layers, kLayers);
  EXPECT_FALSE(engine_->Layers().has_value()) << "no step runs";

  // The token after it comes from the output.
  const std::vector<int32_t> output = {expected[0].sampled.token};
  step.tokens = output;
  step.position = 6;
  step.token_index = 1;
  step.output = output;
  ASSERT_TRUE(twin->Step({&step, 1}, nullptr, &expected).ok());
  StepPlan next{.number = 8};
  next.sequences = {{.sequence = sequence,
                     .position = 6,
                     .count = 1,
                     .blocks = blocks,
                     .output = output,
                     .sample = true,
                     .token_index = 1}};
  EXPECT_EQ(Run(std::move(next)).results.at(0).sampled.token, expected[0].sampled.token);
}

// By any thread, also the one that runs the step.
TEST_P(StepEngineTest, TheLayersOfTheStepThatRunsAreCounted) {
  const SequenceHandle sequence = Admit(Tokens(6, 10));
  StepPlan plan{.number = 7};
  plan.sequences = {{.sequence = sequence, .count = 6, .blocks = {{3}, {5}}}};
  std::vector<StepLayers> layers;
  plan.layer_queued = [&](int) {
    if (const auto now = engine_->Layers(); now.has_value()) layers.push_back(*now);
  };
  EXPECT_EQ(Run(plan).layers, kLayers);
  if (GetParam() == StepsRun::kOnOwnThread) {
    ASSERT_EQ(layers.size(), 3u);
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(layers[static_cast<size_t>(layer)].number, 7u);
      EXPECT_EQ(layers[static_cast<size_t>(layer)].queued, layer + 1);
      EXPECT_EQ(layers[static_cast<size_t>(layer)].written, layer + 1);
    }
  }
  // None of a step in which nothing runs.
  plan.sequences[0].blocks = {{99}, {5}};
  EXPECT_EQ(Run(plan).layers, 0);
}

TEST_P(StepEngineTest, ASequenceThatFailsDoesSoAlone) {
  const SequenceHandle good = Admit(Tokens(4, 10));
  const SequenceHandle bad = Admit(Tokens(4, 20));
  StepPlan plan;
  plan.sequences = {{.sequence = bad, .count = 4, .blocks = {{99}}, .sample = true},
                    {.sequence = good, .count = 4, .blocks = {{1}}, .sample = true}};
  const CompletedStep completed = Run(std::move(plan));
  ASSERT_TRUE(completed.status.ok()) << completed.status;
  EXPECT_TRUE(absl::IsInvalidArgument(completed.results.at(0).status));
  EXPECT_TRUE(completed.results.at(1).status.ok());
}

// Each step's table is the last one's, changed.
TEST_P(StepEngineTest, ABlockTableGrowsByWhatIsNewAndMayBeReplaced) {
  const auto prompt = Tokens(13, 10);
  const std::vector<int32_t> expected = EmulatedContinuation(
      {.kv = emulated_->Spec().kv, .vocab_size = 1000, .max_positions = 64}, *prompt, 1, *Greedy());
  const SequenceHandle sequence = Admit(prompt);
  const auto run = [&](PlannedSequence planned) {
    planned.sequence = sequence;
    StepPlan plan;
    plan.sequences = {std::move(planned)};
    return Run(std::move(plan)).results.at(0);
  };
  EXPECT_TRUE(run({.count = 6, .blocks = {{3}, {5}}}).status.ok());
  EXPECT_TRUE(run({.position = 6, .count = 4, .kept_blocks = 2, .blocks = {{9}}}).status.ok());
  const SequenceResult last =
      run({.position = 10, .count = 3, .kept_blocks = 3, .blocks = {{2}}, .sample = true});
  ASSERT_TRUE(last.status.ok()) << last.status;
  EXPECT_EQ(last.sampled.token, expected[0]);
  // As after a preemption: other blocks, from the start.
  const SequenceResult again =
      run({.count = 13, .kept_blocks = 1, .blocks = {{11}, {12}, {13}}, .sample = true});
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.sampled.token, expected[0]);
  EXPECT_TRUE(absl::IsInvalidArgument(
      run({.position = 10, .count = 3, .kept_blocks = 2, .blocks = {{12}}}).status))
      << "the table is too short now";
}

TEST_P(StepEngineTest, AWrongBlockOrTokenIsRefusedInEveryStepThatHasIt) {
  const SequenceHandle sequence = Admit(Tokens(4, 10));
  const auto refused = [&](PlannedSequence planned, const char* why) {
    planned.sequence = sequence;
    StepPlan plan;
    plan.sequences = {std::move(planned)};
    const absl::Status status = Run(std::move(plan)).results.at(0).status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find(why), std::string::npos) << status;
  };
  refused({.count = 4, .blocks = {{16}}}, "block_table[0] = 16");
  refused({.count = 4, .kept_blocks = 1}, "block_table[0] = 16");
  const std::vector<int32_t> wrong = {7, 1000, 8};
  for (int i = 0; i < 2; ++i) {
    refused({.position = 6, .count = 1, .blocks = {{1}, {2}}, .output = wrong, .token_index = 3},
            "output[1] = 1000");
  }
}

TEST_P(StepEngineTest, LogprobsOfThePromptAreToldAsAdmitted) {
  const auto handle =
      engine_->Admit({.prompt = Tokens(4, 10), .sampling = Greedy(), .prompt_logprobs = true});
  ASSERT_TRUE(handle.ok());
  StepPlan plan;
  plan.sequences = {{.sequence = *handle, .count = 3, .blocks = {{1}}}};
  const CompletedStep completed = Run(std::move(plan));
  ASSERT_EQ(completed.results.at(0).prompt_logprobs.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(completed.results[0].prompt_logprobs[i].token, 11 + i);
  }
}

TEST_P(StepEngineTest, WhatCannotRunIsNotAdmitted) {
  const auto refused = [this](const SequenceInfo& info, const char* why) {
    const absl::Status status = engine_->Admit(info).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find(why), std::string::npos) << status;
  };
  refused({.prompt = nullptr, .sampling = Greedy()}, "prompt");
  refused({.prompt = Tokens(0, 0), .sampling = Greedy()}, "prompt");
  refused({.prompt = Tokens(3, 998), .sampling = Greedy()}, "token 1000");
  refused({.prompt = Tokens(3, -1), .sampling = Greedy()}, "token -1");
  refused({.prompt = Tokens(3, 10), .sampling = nullptr}, "sampling");
  refused({.prompt = Tokens(3, 10),
           .sampling = std::make_shared<const SamplingParams>(SamplingParams{.top_p = 2.0f})},
          "top_p");
}

TEST_P(StepEngineTest, AReleasedSequenceIsKeptUntilItsStepEnds) {
  const SequenceHandle sequence = Admit(Tokens(4, 10));
  StepPlan plan;
  plan.sequences = {{.sequence = sequence, .count = 4, .blocks = {{1}}, .sample = true}};
  Launch(std::move(plan));
  engine_->Release(sequence);
  EXPECT_TRUE(Await().results.at(0).status.ok());
  engine_->Release(sequence);  // unknown now
}

// Also of a step that is not run, because the one before it failed.
TEST_P(StepEngineTest, EachStepsEndIsToldOnceWhenPollHasIt) {
  StepPlan one{.number = 1}, two{.number = 2};
  one.sequences = {{.sequence = Admit(Tokens(4, 10)), .count = 4, .blocks = {{1}}}};
  one.ring = RingMeeting{.spans = {{0, 4}}, .enter = []() -> absl::StatusOr<RingStep> {
                           return absl::UnavailableError("no group");
                         }};
  two.sequences = {{.sequence = Admit(Tokens(4, 20)), .count = 4, .blocks = {{2}}}};
  Signal first, second;
  std::atomic<int> told = 0;
  one.completed = [&](bool) {
    ++told;
    first.Raise();
  };
  two.completed = [&](bool) {
    ++told;
    second.Raise();
  };
  engine_->Launch(std::move(one));
  engine_->Launch(std::move(two));
  std::vector<uint64_t> numbers;
  if (GetParam() == StepsRun::kInPoll) numbers.push_back(engine_->Poll()->number);
  first.Await();
  second.Await();
  while (const auto completed = engine_->Poll()) numbers.push_back(completed->number);
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(told, 2);
}

TEST_P(StepEngineTest, ARingStepEntersAndLeavesItsMeeting) {
  const SequenceHandle sequence = Admit(Tokens(6, 10));
  std::vector<std::string> calls;
  StepPlan plan;
  plan.sequences = {{.sequence = sequence, .count = 6, .blocks = {{1}, {2}}, .sample = true}};
  plan.ring = RingMeeting{
      .spans = {{0, 6}},
      .enter = [&calls]() -> absl::StatusOr<RingStep> {
        calls.push_back("enter");
        return RingStep{.shares = {{.history_tokens = 0, .spans = {{0, 6}}}},
                        .deadline = std::chrono::steady_clock::now() + std::chrono::hours(1)};
      },
      .leave = [&calls](const absl::Status& status) { calls.push_back(status.ToString()); }};
  const CompletedStep completed = Run(plan);
  EXPECT_TRUE(completed.status.ok()) << completed.status;
  EXPECT_EQ(calls, (std::vector<std::string>{"enter", "OK"}));

  plan.ring->enter = []() -> absl::StatusOr<RingStep> {
    return absl::UnavailableError("no group");
  };
  EXPECT_EQ(Run(plan).status, absl::UnavailableError("no group"));
  EXPECT_EQ(calls.size(), 2u) << "what was not entered is not left";
}

// The step that samples the token `index` >= 1 of a sequence. `block` is new if it needs one.
StepPlan Next(SequenceHandle sequence, int64_t prompt_tokens, int64_t index, BlockId block) {
  const int64_t position = prompt_tokens + index - 1;
  StepPlan plan{.number = static_cast<uint64_t>(index)};
  plan.sequences = {{.sequence = sequence,
                     .position = position,
                     .count = 1,
                     .kept_blocks = (position + 3) / 4,
                     .kept_output = index,
                     .sample = true,
                     .token_index = static_cast<uint64_t>(index)}};
  if (position % 4 == 0) plan.sequences[0].blocks = {block};
  return plan;
}

// Penalties need every token before; the table grows while a step reads it.
TEST_P(StepEngineTest, AStepLaunchedAheadRunsTheTokenThatTheOneBeforeSamples) {
  const auto sampling = std::make_shared<const SamplingParams>(
      SamplingParams{.temperature = 0.9f, .repetition_penalty = 1.3f, .presence_penalty = 1.5f});
  const auto prompt = Tokens(6, 10);
  const std::vector<int32_t> expected = EmulatedContinuation(
      {.kv = emulated_->Spec().kv, .vocab_size = 1000, .max_positions = 64}, *prompt, 8, *sampling);
  const SequenceHandle sequence = Admit(prompt, sampling);
  StepPlan first;
  first.sequences = {{.sequence = sequence, .count = 6, .blocks = {{3}, {5}}, .sample = true}};
  std::vector<int32_t> sampled;
  for (int64_t index = 0; index < 8; index += 2) {
    const BlockId block = {static_cast<int32_t>(8 + index)};
    StepPlan one = index == 0 ? first : Next(sequence, 6, index, block);
    for (const auto& completed : RunAhead(std::move(one), Next(sequence, 6, index + 1, block))) {
      ASSERT_TRUE(completed.status.ok()) << completed.status;
      ASSERT_TRUE(completed.results.at(0).status.ok()) << completed.results[0].status;
      sampled.push_back(completed.results[0].sampled.token);
    }
  }
  EXPECT_EQ(sampled, expected);
}

// A request that is tried again brings the beginning of its answer: it is computed like a prompt,
// in slices, and the answer goes on as it would have.
TEST_P(StepEngineTest, AnAnswerGoesOnBehindItsBeginning) {
  const auto sampling = std::make_shared<const SamplingParams>(
      SamplingParams{.temperature = 0.9f, .repetition_penalty = 1.3f, .presence_penalty = 1.5f});
  const auto prompt = Tokens(6, 10);
  const std::vector<int32_t> expected = EmulatedContinuation(
      {.kv = emulated_->Spec().kv, .vocab_size = 1000, .max_positions = 64}, *prompt, 8, *sampling);
  for (int64_t sent = 1; sent < 8; ++sent) {
    const SequenceHandle sequence = Admit(prompt, sampling);
    std::vector<int32_t> answer(expected.begin(), expected.begin() + sent);
    StepPlan first;
    first.sequences = {{.sequence = sequence, .count = 5, .blocks = {{3}, {5}}}};
    first.sequences[0].output = answer;
    ASSERT_TRUE(Run(std::move(first)).results.at(0).status.ok());
    StepPlan second;
    second.sequences = {{.sequence = sequence, .position = 5, .count = 1 + sent, .kept_blocks = 2}};
    second.sequences[0].blocks = {{7}, {9}};
    second.sequences[0].kept_output = sent;
    second.sequences[0].sample = true;
    second.sequences[0].token_index = static_cast<uint64_t>(sent);
    const CompletedStep completed = Run(std::move(second));
    ASSERT_TRUE(completed.results.at(0).status.ok()) << completed.results[0].status;
    EXPECT_EQ(completed.results[0].sampled.token, expected[static_cast<size_t>(sent)]) << sent;
    engine_->Release(sequence);
  }
}

// Expects of each step that the ids kept for penalties are those of its prompt and output.
class SeenChecker final : public Engine {
 public:
  explicit SeenChecker(Engine* engine) : Engine(StepsRun::kInPoll), engine_(*engine) {}

  const EngineSpec& Spec() const override { return engine_.Spec(); }
  std::span<const KvRegion> KvRegions() const override { return engine_.KvRegions(); }
  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override {
    for (const SequenceStep& sequence : sequences) {
      SeenIds expected(*sequence.sampling, sequence.prompt);
      for (const int32_t id : sequence.output) expected.Add(id);
      EXPECT_EQ(sequence.checked.output, sequence.output.size());
      EXPECT_TRUE(std::ranges::equal(sequence.checked.seen->ids(), expected.ids()));
      outputs.push_back(sequence.output.size());
    }
    return engine_.Step(sequences, progress, results);
  }
  absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                            StepProgress* progress, std::vector<SequenceResult>* results) override {
    return engine_.StepTogether(part, sequences, progress, results);
  }

  std::vector<size_t> outputs;  // of all sequences so far

 private:
  Engine& engine_;
};

TEST_P(StepEngineTest, TheIdsThatPenaltiesFallOnFollowTheOutput) {
  SeenChecker checker(emulated_.get());
  Over(&checker);
  const SequenceHandle sequence =
      Admit(Tokens(6, 10), std::make_shared<const SamplingParams>(
                               SamplingParams{.temperature = 0.9f, .repetition_penalty = 1.3f}));
  StepPlan first;
  first.sequences = {{.sequence = sequence, .count = 6, .blocks = {{3}, {5}}, .sample = true}};
  RunAhead(std::move(first), Next(sequence, 6, 1, {7}));
  // Another output than what was sampled: shorter, and then told anew.
  StepPlan other = Next(sequence, 6, 1, {7});
  other.sequences[0].kept_output = 0;
  other.sequences[0].output = {11};
  Run(std::move(other));
  StepPlan longer = Next(sequence, 6, 2, {9});
  longer.sequences[0].kept_output = 1;
  longer.sequences[0].output = {500};
  Run(std::move(longer));
  EXPECT_EQ(checker.outputs, (std::vector<size_t>{0, 1, 1, 2}));
  engine_.reset();  // before the checker
}

// What the host does between two steps is not the device's time.
TEST_P(StepEngineTest, AStepLaunchedAheadOfATimedDeviceFollowsWithoutAGap) {
  std::vector<StepProgress::Clock::time_point> over;  // of each layer
  const auto timed = Emulated({.prefill_s = [](int, int, int64_t, int64_t) { return 3.0; },
                               .sleep_until = [&over](auto until) { over.push_back(until); }});
  Over(timed.get());
  const SequenceHandle sequence = Admit(Tokens(8, 10));
  StepPlan one, two;
  one.sequences = {{.sequence = sequence, .count = 4, .blocks = {{1}}}};
  two.sequences = {
      {.sequence = sequence, .position = 4, .count = 4, .kept_blocks = 1, .blocks = {{2}}}};
  for (const auto& completed : RunAhead(std::move(one), std::move(two))) {
    EXPECT_TRUE(completed.status.ok()) << completed.status;
  }
  ASSERT_EQ(over.size(), 2u * kLayers);
  for (size_t i = 1; i < over.size(); ++i) {
    EXPECT_EQ(over[i] - over[i - 1], std::chrono::seconds(1)) << i;
  }
}

TEST_P(StepEngineTest, AStepLaunchedAheadRefusesTheSequenceThatGotNoToken) {
  Over(&faulty_);
  const SequenceHandle good = Admit(Tokens(4, 20)), bad = Admit(Tokens(4, 10));  // with a 13
  StepPlan one, two = Next(bad, 4, 1, {2});
  one.sequences = {{.sequence = bad, .count = 4, .blocks = {{1}}, .sample = true},
                   {.sequence = good, .count = 4, .blocks = {{5}}, .sample = true}};
  two.sequences.push_back(Next(good, 4, 1, {6}).sequences[0]);
  const auto completed = RunAhead(std::move(one), std::move(two));
  EXPECT_TRUE(absl::IsInternal(completed[0].results.at(0).status));
  EXPECT_FALSE(completed[1].results.at(0).status.ok());
  const std::vector<int32_t> expected =
      EmulatedContinuation({.kv = emulated_->Spec().kv, .vocab_size = 1000, .max_positions = 64},
                           *Tokens(4, 20), 2, *Greedy());
  EXPECT_EQ(completed[0].results.at(1).sampled.token, expected[0]);
  EXPECT_EQ(completed[1].results.at(1).sampled.token, expected[1]);
}

TEST_P(StepEngineTest, AStepThatFailsEndsTheOneLaunchedAhead) {
  const SequenceHandle first = Admit(Tokens(4, 10)), second = Admit(Tokens(4, 20));
  std::promise<void> launched;
  StepPlan one{.number = 1}, two{.number = 2};
  one.sequences = {{.sequence = first, .count = 4, .blocks = {{1}}, .sample = true}};
  one.ring = RingMeeting{.spans = {{0, 4}}, .enter = [&]() -> absl::StatusOr<RingStep> {
                           if (GetParam() == StepsRun::kOnOwnThread) launched.get_future().wait();
                           return absl::UnavailableError("no group");
                         }};
  two.sequences = {{.sequence = second, .count = 4, .blocks = {{2}}, .sample = true}};
  StepPlan again = two;
  Launch(std::move(one));
  Launch(std::move(two));
  launched.set_value();
  for (uint64_t number : {1, 2}) {
    const CompletedStep completed = Await();
    EXPECT_EQ(completed.number, number);
    EXPECT_EQ(completed.status, absl::UnavailableError("no group"));
  }
  EXPECT_TRUE(Run(std::move(again)).status.ok()) << "of the one behind it no more";
}

TEST_P(StepEngineTest, AStepThatFailsEndsTheOneLaunchedBeforeItIsPolled) {
  StepPlan one{.number = 1}, two{.number = 2};
  one.sequences = {{.sequence = Admit(Tokens(4, 10)), .count = 4, .blocks = {{1}}, .sample = true}};
  one.ring = RingMeeting{.spans = {{0, 4}}, .enter = []() -> absl::StatusOr<RingStep> {
                           return absl::UnavailableError("no group");
                         }};
  two.sequences = {{.sequence = Admit(Tokens(4, 20)), .count = 4, .blocks = {{2}}, .sample = true}};
  Launch(std::move(one));
  if (GetParam() == StepsRun::kOnOwnThread) signal_.Await();
  Launch(std::move(two));
  if (GetParam() == StepsRun::kOnOwnThread) signal_.Await();
  for (uint64_t number : {1, 2}) {
    const std::optional<CompletedStep> completed = engine_->Poll();
    ASSERT_TRUE(completed.has_value());
    EXPECT_EQ(completed->number, number);
    EXPECT_EQ(completed->status, absl::UnavailableError("no group"));
  }
}

StepPlan FourTokens(Engine* engine, int32_t block) {
  StepPlan plan;
  plan.sequences = {{.sequence = *engine->Admit({.prompt = Tokens(4, 10), .sampling = Greedy()}),
                     .count = 4,
                     .blocks = {{block}}}};
  return plan;
}

void EndWhileAStepRuns() {
  const auto emulated = Emulated();
  PolledEngine engine(emulated.get(), StepsRun::kOnOwnThread);
  StepPlan plan = FourTokens(&engine, 1);
  plan.layer_queued = [](int) { std::promise<void>().get_future().wait(); };
  engine.Launch(std::move(plan));
}

TEST(StepEngineDeathTest, AnEngineMustNotEndWhileItsThreadRunsAStep) {
  EXPECT_DEATH(EndWhileAStepRuns(), "an engine ends while a step runs");
}

TEST(StepEngineEndTest, LaunchedStepsThatPollHasNotBegunAreDropped) {
  const auto emulated = Emulated();
  auto engine = std::make_unique<PolledEngine>(emulated.get());
  const auto calls = std::make_shared<int>(0);
  for (const int32_t block : {1, 2}) {
    StepPlan plan = FourTokens(engine.get(), block);
    plan.layer_queued = [calls](int) { ++*calls; };
    plan.completed = [calls](bool) { ++*calls; };
    engine->Launch(std::move(plan));
  }
  engine.reset();
  EXPECT_EQ(*calls, 0);
  EXPECT_EQ(calls.use_count(), 1) << "the plans are gone, too";
}

TEST_P(StepEngineTest, ItsRegionsAreTheEngines) {
  EXPECT_EQ(engine_->KvRegions().data(), emulated_->KvRegions().data());
  EXPECT_EQ(&engine_->Spec(), &emulated_->Spec());
}

INSTANTIATE_TEST_SUITE_P(Where, StepEngineTest,
                         ::testing::Values(StepsRun::kInPoll, StepsRun::kOnOwnThread),
                         [](const auto& info) {
                           return info.param == StepsRun::kInPoll ? "InPoll" : "OnOwnThread";
                         });

}  // namespace
}  // namespace skein::engine
