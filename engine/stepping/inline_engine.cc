#include "engine/stepping/inline_engine.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {

absl::StatusOr<SequenceHandle> InlineEngine::Admit(const SequenceInfo& info) {
  if (info.prompt == nullptr || info.prompt->empty()) {
    return absl::InvalidArgumentError("prompt: empty");
  }
  if (info.sampling == nullptr) return absl::InvalidArgumentError("sampling: none");
  for (const int32_t token : *info.prompt) {
    if (token >= 0 && token < Spec().vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("prompt: token ", token, " is outside the vocabulary of ", Spec().vocab_size));
  }
  const SequenceHandle handle{++last_};
  sequences_.emplace(handle, info);
  return handle;
}

InlineEngine::Taken InlineEngine::Take(StepPlan plan) const {
  Taken taken{.plan = std::move(plan), .sequences = {}};
  for (const PlannedSequence& planned : taken.plan.sequences) {
    taken.sequences.push_back(sequences_.at(planned.sequence));
  }
  return taken;
}

CompletedStep InlineEngine::Run(const Taken& taken) const {
  const StepPlan& plan = taken.plan;
  std::vector<Buffers> buffers;
  std::vector<SequenceStep> steps;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    buffers.push_back(BuffersOf(taken.sequences[i], plan.sequences[i], plan.ring));
  }
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    steps.push_back(StepOf(taken.sequences[i], plan.sequences[i], buffers[i]));
  }
  CompletedStep completed{.number = plan.number, .status = {}, .results = {}};
  const auto started = std::chrono::steady_clock::now();
  completed.status = Step(plan, std::move(steps), &completed.results);
  completed.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return completed;
}

absl::Status InlineEngine::Step(const StepPlan& plan, std::vector<SequenceStep> steps,
                                std::vector<SequenceResult>* results) const {
  if (!plan.ring.has_value()) return engine_->Step(steps, plan.layer_done, results);
  if (steps.size() != 1) {
    return absl::InvalidArgumentError("ring: a ring step must have exactly one sequence");
  }
  const absl::StatusOr<RingStep> ring = plan.ring->enter();
  if (!ring.ok()) return ring.status();
  steps.front().ring = &*ring;
  absl::Status status = engine_->Step(steps, plan.layer_done, results);
  plan.ring->leave(status);
  return status;
}

InlineEngine::Buffers InlineEngine::BuffersOf(const SequenceInfo& info,
                                              const PlannedSequence& planned,
                                              const std::optional<RingMeeting>& ring) {
  Buffers out;
  const std::vector<int32_t>& prompt = *info.prompt;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out.tokens.push_back(i < prompt_tokens ? prompt[static_cast<size_t>(i)]
                                             : (*planned.output)[i - prompt_tokens]);
      if (info.prompt_logprobs && begin < prompt_tokens) {
        out.next_tokens.push_back(i + 1 < prompt_tokens ? prompt[static_cast<size_t>(i + 1)] : -1);
      }
    }
  };
  if (!ring.has_value()) {
    run(planned.position, planned.position + planned.count);
  } else {
    for (const TokenSpan& span : ring->spans) run(span.position, span.position + span.count);
  }
  return out;
}

SequenceStep InlineEngine::StepOf(const SequenceInfo& info, const PlannedSequence& planned,
                                  const Buffers& buffers) {
  SequenceStep step;
  step.tokens = buffers.tokens;
  step.position = planned.position;
  step.block_table = planned.blocks;
  step.sample = planned.sample;
  step.sampling = info.sampling.get();
  step.token_index = planned.token_index;
  step.prompt = *info.prompt;
  if (planned.output != nullptr) step.output = *planned.output;
  step.next_tokens = buffers.next_tokens;
  return step;
}

}  // namespace skein::engine
