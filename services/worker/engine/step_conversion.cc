#include "services/worker/engine/step_conversion.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "proto/common.pb.h"
#include "scheduler/base/plant.h"
#include "services/worker/engine/sampling_codec.h"

namespace skein::services {
namespace {

std::shared_ptr<const engine::SamplingParams> ProbeSampling() {
  static const auto params =
      std::make_shared<const engine::SamplingParams>(engine::SamplingParams{.temperature = 0.0f});
  return params;
}

std::shared_ptr<const std::vector<int32_t>> PromptOf(const scheduler::SpecPtr& spec) {
  if (spec->sent_tokens == 0 || SKEIN_PLANT(sent_tokens_forgotten)) return {spec, &spec->prompt};
  const std::span<const int32_t> asked = scheduler::AskedPrompt(*spec);
  return std::make_shared<const std::vector<int32_t>>(asked.begin(), asked.end());
}

// How many entries both begin with. Tables are immutable: most steps have the last one's.
size_t KeptBlocks(const scheduler::BlockTable& before, const scheduler::BlockTable& now) {
  if (before == nullptr) return 0;
  if (before == now) return now->size();
  const auto differ = std::mismatch(before->begin(), before->end(), now->begin(), now->end());
  return static_cast<size_t>(differ.first - before->begin());
}

}  // namespace

absl::StatusOr<StepConversion::Known*> StepConversion::KnownOf(
    const scheduler::StepSequence& sequence, bool probe) {
  const scheduler::SpecPtr& spec = sequence.spec;
  const Key key{sequence.id, sequence.epoch};
  const auto known = known_.find(key);
  if (!probe && known != known_.end()) return &known->second;
  const absl::StatusOr<engine::SequenceHandle> handle = engine_->Admit(
      {.prompt = PromptOf(spec),
       .sampling = probe ? ProbeSampling()
                         : std::make_shared<const engine::SamplingParams>(SamplingFrom(*spec)),
       // One with an output was prefilled elsewhere: these logprobs have been told.
       .prompt_logprobs = spec->want_prompt_logprobs && sequence.output == nullptr,
       .layout = sequence.layout});
  if (!handle.ok()) return handle.status();
  if (!probe) return &known_.emplace(key, Known{*handle}).first->second;
  if (probe_.has_value()) engine_->Release(probe_->handle);
  return &probe_.emplace(Known{*handle});
}

void StepConversion::PlanBlocks(const scheduler::StepSequence& sequence, Known* known,
                                engine::PlannedSequence* planned) {
  const size_t kept = KeptBlocks(known->table, sequence.blocks);
  planned->kept_blocks = static_cast<int64_t>(kept);
  planned->blocks.assign(sequence.blocks->begin() + kept, sequence.blocks->end());
  known->table = sequence.blocks;
}

// The engine has what it was told and what it has sampled, the step in flight included. So one
// token of the output may not be known here yet, and it is the last one. What an attempt before
// sampled of the answer is output for the engine, too.
void StepConversion::PlanOutput(const scheduler::StepSequence& sequence, Known* known,
                                engine::PlannedSequence* planned) {
  static const std::vector<int32_t> kNone;
  const std::vector<int32_t>& output = sequence.output == nullptr ? kNone : *sequence.output;
  std::span<const int32_t> sent = scheduler::SentOutput(*sequence.spec);
  if (SKEIN_PLANT(sent_tokens_forgotten)) sent = {};
  const auto sent_tokens = static_cast<int64_t>(sent.size());
  const int64_t size = sent_tokens + static_cast<int64_t>(output.size());
  const int64_t run =
      sequence.position + sequence.count - scheduler::PromptTokens(*sequence.spec) + sent_tokens;
  const int64_t before = std::max(size, run);
  planned->kept_output = std::min(known->output, before);
  known->output = before + (sequence.sample ? 1 : 0);
  if (SKEIN_PLANT(penalties_forget) && before == size) planned->kept_output = 0;
  if (planned->kept_output >= size) return;
  const int64_t kept_of_sent = std::min(planned->kept_output, sent_tokens);
  planned->output.assign(sent.begin() + kept_of_sent, sent.end());
  planned->output.insert(planned->output.end(),
                         output.begin() + (planned->kept_output - kept_of_sent), output.end());
  if (!SKEIN_PLANT(penalties_forget)) return;
  const int64_t forgotten = std::max<int64_t>(run - sequence.count, 0);
  std::fill_n(planned->output.begin(), std::min(forgotten, size - planned->kept_output), 0);
}

StepConversion::Planned StepConversion::PlanOf(scheduler::RunStep step) {
  Planned planned{.step = std::move(step), .plan = {}, .admitted = {}};
  planned.plan.number = planned.step.step;
  for (const scheduler::StepSequence& sequence : planned.step.sequences) {
    const absl::StatusOr<Known*> known = KnownOf(sequence, planned.step.probe);
    planned.admitted.push_back(known.status());
    if (!known.ok()) continue;
    engine::PlannedSequence& one = planned.plan.sequences.emplace_back();
    one.sequence = (*known)->handle;
    one.position = sequence.position;
    one.count = sequence.count;
    one.sample = sequence.sample;
    one.token_index = static_cast<uint64_t>(sequence.token_index + sequence.spec->sent_tokens);
    PlanBlocks(sequence, *known, &one);
    PlanOutput(sequence, *known, &one);
  }
  return planned;
}

StepConversion::~StepConversion() {
  for (const auto& [key, known] : known_) engine_->Release(known.handle);
  if (probe_.has_value()) engine_->Release(probe_->handle);
}

void StepConversion::Release(const scheduler::ReleaseSequence& effect) {
  const auto known = known_.extract(Key{effect.id, effect.epoch});
  if (!known.empty()) engine_->Release(known.mapped().handle);
}

scheduler::StepDone StepConversion::DoneOf(const Planned& planned,
                                           const engine::CompletedStep& completed) {
  scheduler::StepDone done{.step = planned.step.step, .status = completed.status, .results = {}};
  // An engine refuses a step of nothing. Each sequence has a reason of its own then.
  const bool some_ran = std::any_of(planned.admitted.begin(), planned.admitted.end(),
                                    [](const absl::Status& admitted) { return admitted.ok(); });
  if (!some_ran) done.status = absl::OkStatus();
  if (!done.status.ok()) return done;
  size_t next = 0;
  for (size_t i = 0; i < planned.admitted.size(); ++i) {
    if (planned.admitted[i].ok()) {
      done.results.push_back(ResultOf(planned.step.sequences[i], completed.results.at(next++)));
    } else {
      done.results.push_back({.status = planned.admitted[i]});
    }
  }
  return done;
}

scheduler::StepResult ResultOf(const scheduler::StepSequence& sequence,
                               const engine::SequenceResult& result) {
  scheduler::StepResult out;
  out.status = result.status;
  if (!out.status.ok()) return out;
  if (sequence.sample) {
    out.token = result.sampled.token;
    out.payload = PayloadOf(result.sampled);
  }
  v1::SampledTokens logprobs;
  for (const engine::SampledToken& token : result.prompt_logprobs) {
    if (token.token >= 0) *logprobs.add_tokens() = ToProto(token);
  }
  out.prompt_logprobs = logprobs.SerializeAsString();
  return out;
}

engine::RingStep RingStepOf(const scheduler::RingPart& part) {
  engine::RingStep step;
  step.tp = part.tp;
  for (size_t rank = 0; rank < part.piece.spans.size(); ++rank) {
    step.shares.push_back({.history_tokens = part.history_tokens[rank],
                           .spans = part.piece.spans[rank],
                           .history = part.piece.history[rank],
                           .wants_logits = part.wants_logits[rank]});
  }
  for (const scheduler::Move& move : part.piece.moves) {
    step.moved_blocks_max =
        std::max(step.moved_blocks_max, static_cast<int64_t>(move.blocks.size()));
  }
  step.history_blocks = part.history;
  step.send = part.send;
  step.receive = part.receive;
  step.deadline =
      std::chrono::steady_clock::time_point(std::chrono::microseconds(part.deadline_us));
  return step;
}

}  // namespace skein::services
