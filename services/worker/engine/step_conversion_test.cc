#include "services/worker/engine/step_conversion.h"

#include <gtest/gtest.h>

#include <map>

namespace skein::services {
namespace {

// Notes what is admitted and released; refuses prompts that begin with a negative token.
class FakeEngine : public engine::StepEngine {
 public:
  const engine::EngineSpec& Spec() const override { return spec_; }
  std::span<const engine::KvRegion> KvRegions() const override { return {}; }
  absl::StatusOr<engine::SequenceHandle> Admit(const engine::SequenceInfo& info) override {
    if (info.prompt->front() < 0) return absl::InvalidArgumentError("prompt");
    const engine::SequenceHandle handle{++admissions};
    admitted[handle] = info;
    return handle;
  }
  void Launch(engine::StepPlan) override {}
  std::optional<engine::CompletedStep> Poll() override { return std::nullopt; }
  std::optional<engine::StepLayers> Layers() override { return std::nullopt; }
  void Release(engine::SequenceHandle sequence) override { admitted.erase(sequence); }

  std::map<engine::SequenceHandle, engine::SequenceInfo> admitted;
  uint64_t admissions = 0;

 private:
  engine::EngineSpec spec_;
};

scheduler::StepSequence Sequence(uint64_t serial, int32_t first_token = 1, uint64_t epoch = 5) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {7, serial};
  spec->prompt = {first_token, 2, 3};
  return {.id = spec->id,
          .epoch = {epoch},
          .spec = spec,
          .count = 3,
          .blocks = std::make_shared<const std::vector<scheduler::BlockId>>(
              std::vector<scheduler::BlockId>{{4}, {6}}),
          .sample = true,
          .token_index = 0};
}

TEST(StepConversion, ASequenceIsAdmittedOnceAndReleasedByItsEpoch) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  const auto first = conversion.PlanOf({.step = 1, .sequences = {Sequence(1), Sequence(2)}});
  EXPECT_EQ(first.plan.number, 1u);
  ASSERT_EQ(first.plan.sequences.size(), 2u);
  EXPECT_EQ(first.plan.sequences[0].blocks, (std::vector<BlockId>{{4}, {6}}));
  const auto second = conversion.PlanOf({.step = 2, .sequences = {Sequence(2)}});
  EXPECT_EQ(second.plan.sequences[0].sequence, first.plan.sequences[1].sequence);
  EXPECT_EQ(engine.admissions, 2u);
  conversion.Release({{7, 2}, {4}});
  EXPECT_EQ(engine.admitted.size(), 2u) << "of another epoch";
  conversion.Release({{7, 2}, {5}});
  conversion.Release({{7, 2}, {5}});
  EXPECT_EQ(engine.admitted.size(), 1u);
  conversion.PlanOf({.step = 3, .sequences = {Sequence(2)}});
  EXPECT_EQ(engine.admissions, 3u);
}

scheduler::BlockTable Table(std::vector<int32_t> ids) {
  std::vector<scheduler::BlockId> blocks;
  for (const int32_t id : ids) blocks.push_back({id});
  return std::make_shared<const std::vector<scheduler::BlockId>>(std::move(blocks));
}

TEST(StepConversion, ABlockTableTravelsAsWhatIsNew) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  scheduler::StepSequence sequence = Sequence(1);
  const auto plan = [&](scheduler::BlockTable table) {
    sequence.blocks = std::move(table);
    return conversion.PlanOf({.step = 1, .sequences = {sequence}}).plan.sequences.at(0);
  };
  const scheduler::BlockTable first = Table({4, 6});
  EXPECT_EQ(plan(first).kept_blocks, 0);
  EXPECT_EQ(plan(first).kept_blocks, 2);
  EXPECT_TRUE(plan(first).blocks.empty());
  const auto grown = plan(Table({4, 6, 9}));
  EXPECT_EQ(grown.kept_blocks, 2);
  EXPECT_EQ(grown.blocks, (std::vector<BlockId>{{9}}));
  const auto after_preemption = plan(Table({4, 8}));
  EXPECT_EQ(after_preemption.kept_blocks, 1);
  EXPECT_EQ(after_preemption.blocks, (std::vector<BlockId>{{8}}));
  conversion.Release({sequence.id, sequence.epoch});
  EXPECT_EQ(plan(Table({4, 8})).kept_blocks, 0) << "admitted anew";
}

// The engine has what it was told and what it sampled, also in the step that still runs.
TEST(StepConversion, AnOutputTravelsAsWhatIsNew) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  auto output = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{40});
  scheduler::StepSequence sequence = Sequence(1);
  sequence.output = output;
  sequence.count = 1;
  const auto plan = [&](int64_t position) {
    sequence.position = position;
    return conversion.PlanOf({.step = 1, .sequences = {sequence}}).plan.sequences.at(0);
  };
  const auto first = plan(3);  // runs the token that the prefill instance sampled
  EXPECT_EQ(first.kept_output, 0);
  EXPECT_EQ(first.output, (std::vector<int32_t>{40}));
  const auto ahead = plan(4);  // launched while that one runs: 41 is not known here
  EXPECT_EQ(ahead.kept_output, 2);
  EXPECT_TRUE(ahead.output.empty());
  output->insert(output->end(), {41, 42});
  EXPECT_EQ(plan(5).kept_output, 3);
  EXPECT_TRUE(plan(5).output.empty());
  sequence.count = 6;  // as after a preemption
  const auto again = plan(0);
  EXPECT_EQ(again.kept_output, 3);
  EXPECT_TRUE(again.output.empty());
}

TEST(StepConversion, WhatTheEngineDoesNotAdmitFailsAlone) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  const auto planned = conversion.PlanOf({.step = 1, .sequences = {Sequence(1, -1), Sequence(2)}});
  ASSERT_EQ(planned.plan.sequences.size(), 1u);
  engine::CompletedStep completed{.number = 1, .results = {{}}};
  completed.results[0].sampled.token = 40;
  const scheduler::StepDone done = StepConversion::DoneOf(planned, completed);
  ASSERT_TRUE(done.status.ok());
  ASSERT_EQ(done.results.size(), 2u);
  EXPECT_TRUE(absl::IsInvalidArgument(done.results[0].status));
  EXPECT_TRUE(done.results[1].status.ok());
  EXPECT_EQ(done.results[1].token, 40);
}

// The engine's word about the empty step is none about them.
TEST(StepConversion, WhereNoneIsAdmittedEachHasItsOwnReason) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  const auto planned = conversion.PlanOf({.step = 3, .sequences = {Sequence(1, -1)}});
  ASSERT_TRUE(planned.plan.sequences.empty());
  const scheduler::StepDone done = StepConversion::DoneOf(
      planned, {.number = 3, .status = absl::InvalidArgumentError("sequences: empty")});
  EXPECT_TRUE(done.status.ok());
  ASSERT_EQ(done.results.size(), 1u);
  EXPECT_EQ(done.results[0].status, absl::InvalidArgumentError("prompt"));
}

TEST(StepConversion, AStepThatFailedHasNoResults) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  auto planned = conversion.PlanOf({.step = 1, .sequences = {Sequence(1)}});
  planned.plan = {};  // it was launched
  const scheduler::StepDone done = StepConversion::DoneOf(
      planned, {.number = 1, .status = absl::InternalError("device"), .results = {}});
  EXPECT_EQ(done.step, 1u);
  EXPECT_EQ(done.status, absl::InternalError("device"));
  EXPECT_TRUE(done.results.empty());
}

TEST(StepConversion, OneProbeIsKnownAtATimeAndItIsGreedy) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  conversion.PlanOf({.step = 1, .sequences = {Sequence(1)}});
  for (uint64_t step = 2; step < 5; ++step) {
    const auto probe = conversion.PlanOf({.step = step, .sequences = {Sequence(1)}, .probe = true});
    EXPECT_EQ(engine.admitted.at(probe.plan.sequences.at(0).sequence).sampling->temperature, 0.0f);
    EXPECT_EQ(engine.admitted.size(), 2u);
  }
}

// An attempt that goes on behind the beginning of an answer: the engine is told of this as output,
// and counts its tokens in the index.
TEST(StepConversion, WhatWasSentOfTheAnswerIsOutput) {
  FakeEngine engine;
  StepConversion conversion(&engine);
  scheduler::StepSequence sequence = Sequence(1);
  auto spec = std::make_shared<scheduler::RequestSpec>(*sequence.spec);
  spec->prompt = {1, 2, 3, 21, 22};
  spec->sent_tokens = 2;
  sequence.spec = spec;
  sequence.count = 2;
  sequence.sample = false;
  const auto slice = conversion.PlanOf({.step = 1, .sequences = {sequence}}).plan.sequences.at(0);
  EXPECT_EQ(*engine.admitted.begin()->second.prompt, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(slice.output, (std::vector<int32_t>{21, 22}));
  sequence.position = 2;
  sequence.count = 3;
  sequence.sample = true;
  const auto last = conversion.PlanOf({.step = 2, .sequences = {sequence}}).plan.sequences.at(0);
  EXPECT_EQ(last.kept_output, 2);
  EXPECT_TRUE(last.output.empty());
  EXPECT_EQ(last.token_index, 2u);
  // The next step runs the token that this one samples, before anybody has told it.
  sequence.position = 5;
  sequence.count = 1;
  sequence.token_index = 1;
  sequence.output = std::make_shared<const std::vector<int32_t>>();
  const auto next = conversion.PlanOf({.step = 3, .sequences = {sequence}}).plan.sequences.at(0);
  EXPECT_EQ(next.kept_output, 3);
  EXPECT_EQ(next.token_index, 3u);

  // A decode instance that got the KV of all of it.
  scheduler::StepSequence handed = sequence;
  handed.id = {7, 2};
  handed.position = 5;
  handed.output = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{23});
  const auto first = conversion.PlanOf({.step = 4, .sequences = {handed}}).plan.sequences.at(0);
  EXPECT_EQ(first.kept_output, 0);
  EXPECT_EQ(first.output, (std::vector<int32_t>{21, 22, 23}));
}

}  // namespace
}  // namespace skein::services
