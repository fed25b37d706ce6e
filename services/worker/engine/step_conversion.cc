#include "services/worker/engine/step_conversion.h"

#include <chrono>

#include "proto/common.pb.h"
#include "scheduler/base/plant.h"
#include "services/worker/engine/block_ids.h"
#include "services/worker/engine/sampling_codec.h"

namespace skein::services {
namespace {

std::shared_ptr<const engine::SamplingParams> ProbeSampling() {
  static const auto params =
      std::make_shared<const engine::SamplingParams>(engine::SamplingParams{.temperature = 0.0f});
  return params;
}

}  // namespace

StepInputs::StepInputs(const scheduler::RunStep& step, const SamplingOf& sampling_of) {
  buffers_.reserve(step.sequences.size());
  sequences_.reserve(step.sequences.size());
  for (const scheduler::StepSequence& sequence : step.sequences) {
    buffers_.push_back(BuffersOf(sequence));
    buffers_.back().sampling = step.probe ? ProbeSampling() : sampling_of(*sequence.spec);
    sequences_.push_back(StepOf(sequence, buffers_.back()));
  }
}

StepInputs::Buffers StepInputs::BuffersOf(const scheduler::StepSequence& sequence) {
  Buffers out;
  const auto& prompt = sequence.spec->prompt;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out.tokens.push_back(sequence.TokenAt(i));
      if (sequence.spec->want_prompt_logprobs && begin < prompt_tokens) {
        out.next_tokens.push_back(i + 1 < prompt_tokens ? prompt[static_cast<size_t>(i + 1)] : -1);
      }
    }
  };
  if (sequence.ring == nullptr) {
    run(sequence.position, sequence.position + sequence.count);
  } else {
    for (const TokenSpan& span : sequence.ring->piece.spans[sequence.ring->rank]) {
      run(span.position, span.position + span.count);
    }
  }
  out.blocks = PlainIds(*sequence.blocks);
  return out;
}

engine::SequenceStep StepInputs::StepOf(const scheduler::StepSequence& sequence,
                                        const Buffers& buffers) {
  engine::SequenceStep step;
  step.tokens = buffers.tokens;
  step.position = sequence.position;
  step.block_table = buffers.blocks;
  step.sample = sequence.sample;
  step.sampling = buffers.sampling.get();
  step.token_index = static_cast<uint64_t>(sequence.token_index);
  step.prompt = sequence.spec->prompt;
  if (sequence.output != nullptr && !SKEIN_PLANT(penalties_forget)) step.output = *sequence.output;
  step.next_tokens = buffers.next_tokens;
  return step;
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
  for (size_t rank = 0; rank < part.piece.spans.size(); ++rank) {
    step.shares.push_back(
        {.history_tokens = part.history_tokens[rank], .spans = part.piece.spans[rank]});
  }
  step.history_blocks = PlainIds(part.history);
  for (const auto& blocks : part.send) step.send.push_back(PlainIds(blocks));
  for (const auto& blocks : part.receive) step.receive.push_back(PlainIds(blocks));
  step.deadline =
      std::chrono::steady_clock::time_point(std::chrono::microseconds(part.deadline_us));
  return step;
}

}  // namespace skein::services
