// What the members of a ring step compute: blocks moved, history read, tags written.
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/stepping/testing/polled_engine.h"
#include "engine/stepping/testing/run_plan.h"
#include "services/worker/engine/sampling_codec.h"
#include "services/worker/engine/step_conversion.h"
#include "tests/sim/answers.h"
#include "tests/sim/joint_steps.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

using scheduler::BlockId;
using scheduler::Piece;
using scheduler::StepSequence;

namespace {

std::byte* BlockAt(const engine::EmulatedEngine& engine, int layer, int32_t block) {
  return static_cast<std::byte*>(engine.KvRegions()[layer].base) +
         block * engine.Spec().kv.BlockBytes();
}

// All layers of one block.
void CopyBlock(const engine::EmulatedEngine& from, int32_t source, const engine::EmulatedEngine& to,
               int32_t target) {
  for (int layer = 0; layer < to.Spec().kv.num_layers; ++layer) {
    std::memcpy(BlockAt(to, layer, target), BlockAt(from, layer, source),
                to.Spec().kv.BlockBytes());
  }
}

// A rank's result of a step whose check refused the sequence (at all ranks), or which ran (only one
// rank samples).
scheduler::StepResult ResultAt(const StepSequence& sequence, engine::SequenceResult computed,
                               bool ran) {
  computed.status = ran && !sequence.sample ? absl::OkStatus() : StatusOf(sequence, computed);
  return services::ResultOf(sequence, computed);
}

// The prompt's tokens of `span` on one engine, whose blocks hold those before it in their order.
// Admit may refuse the sequence: then nothing ran. That the step of an admitted one fails is a
// violation.
engine::SequenceResult RunAlone(engine::EmulatedEngine* engine, const scheduler::RequestSpec& spec,
                                TokenSpan span, bool sample, Verdict* verdict, bool* ran) {
  engine::PolledEngine polled(engine);
  const auto asked = scheduler::AskedPrompt(spec);
  const auto sent = scheduler::SentOutput(spec);
  const auto sequence = polled.Admit(
      {.prompt = std::make_shared<const std::vector<int32_t>>(asked.begin(), asked.end()),
       .sampling = std::make_shared<const engine::SamplingParams>(services::SamplingFrom(spec))});
  if (!sequence.ok()) {
    engine::SequenceResult refused;
    refused.status = sequence.status();
    return refused;
  }
  engine::PlannedSequence planned{.sequence = *sequence, .position = span.position};
  planned.count = span.count;
  planned.sample = sample;
  planned.output.assign(sent.begin(), sent.end());
  planned.token_index = sent.size();
  for (int i = 0; i < engine->Spec().kv.num_blocks; ++i) planned.blocks.push_back({i});
  engine::StepPlan plan;
  plan.sequences = {std::move(planned)};
  plan.layer_queued = [](int) {};
  engine::CompletedStep completed = RunPlan(&polled, std::move(plan));
  verdict->Require(completed.status.ok(), completed.status.ToString());
  if (!completed.status.ok()) return {};
  *ran = completed.layers > 0;
  return std::move(completed.results.front());
}

}  // namespace

void JointSteps::Move(Meeting& meeting) {
  const Piece& piece = PartOf(meeting.entrants.at(0)).piece;
  for (const scheduler::Move& move : piece.moves) {
    const Entrant& giver = meeting.entrants.at(move.from);
    const Entrant& taker = meeting.entrants.at(move.to);
    const std::vector<BlockId>& source = PartOf(giver).send[move.to];
    const std::vector<BlockId>& target = PartOf(taker).receive[move.from];
    if (source.size() != target.size() || source.size() != move.blocks.size()) {
      return verdict_->Violated("giver and taker disagree on what moves");
    }
    for (size_t i = 0; i < source.size(); ++i) {
      CopyBlock(*giver.engine, source[i].value, *taker.engine, target[i].value);
    }
  }
}

std::vector<scheduler::StepResult> JointSteps::Compute(Meeting& meeting) {
  Move(meeting);
  const StepSequence& sequence = SequenceOf(meeting.entrants.at(0));
  const Piece& piece = PartOf(meeting.entrants.at(0)).piece;
  const int unit = meeting.entrants.at(0).engine->Spec().kv.block_tokens;
  engine::EmulatedOptions options =
      EngineOptions(scheduler::Role::kPrefill, network_->scenario().kv_heads);
  const int64_t prompt_tokens = scheduler::PromptTokens(*sequence.spec);
  options.kv.num_blocks = static_cast<int>((prompt_tokens + unit - 1) / unit);
  const auto scratch = *engine::EmulatedEngine::Create(options);
  std::set<int32_t> seen;
  int64_t begin = prompt_tokens;
  for (const auto& [rank, entrant] : meeting.entrants) {
    const std::vector<int32_t>& history = piece.history[rank];
    verdict_->Require(history.size() == PartOf(entrant).history.size(), "history blocks missing");
    for (size_t i = 0; i < history.size(); ++i) {
      verdict_->Require(seen.insert(history[i]).second, "history twice");
      CopyBlock(*entrant.engine, PartOf(entrant).history[i].value, *scratch, history[i]);
    }
    for (const TokenSpan& span : piece.spans[rank]) {
      begin = std::min(begin, span.position);
    }
  }
  verdict_->Require(static_cast<int64_t>(seen.size()) * unit == begin, "history incomplete");

  const int64_t end = PartOf(meeting.entrants.at(0)).token_end;
  const bool samples_token = piece.last && sequence.spec->max_tokens > 0;
  bool ran = false;
  const engine::SequenceResult result =
      RunAlone(scratch.get(), *sequence.spec, {begin, end - begin}, samples_token, verdict_, &ran);
  std::vector<scheduler::StepResult> computed(meeting.entrants.size());
  for (const auto& [rank, entrant] : meeting.entrants) {
    const std::vector<int32_t> blocks = scheduler::BlocksOfSpans(piece.spans[rank], unit);
    const std::vector<BlockId>& local = *SequenceOf(entrant).blocks;
    verdict_->Require(blocks.size() == local.size(), "blocks of the spans missing");
    for (size_t i = 0; i < blocks.size(); ++i) {
      CopyBlock(*scratch, blocks[i], *entrant.engine, local[i].value);
    }
    computed[rank] = ResultAt(SequenceOf(entrant), result, ran);
    const bool samples = rank == piece.sampler && sequence.spec->max_tokens > 0;
    verdict_->Require(SequenceOf(entrant).sample == samples, "another rank samples");
  }
  return computed;
}

}  // namespace skein::sim
