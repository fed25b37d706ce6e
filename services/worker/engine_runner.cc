#include "services/worker/engine_runner.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "proto/common.pb.h"
#include "services/worker/block_ids.h"
#include "services/worker/sampling_codec.h"

namespace skein::services {
namespace {

constexpr size_t kSamplingCacheMax = 4096;

// What one sequence of a step points into while it runs.
struct Buffers {
  std::vector<int32_t> tokens;
  std::vector<int32_t> next_tokens;
  std::vector<int32_t> blocks;
  std::shared_ptr<const engine::SamplingParams> sampling;
};

Buffers BuffersOf(const scheduler::StepSequence& sequence) {
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
  if (sequence.spanning == nullptr) {
    run(sequence.position, sequence.position + sequence.count);
  } else {
    for (const scheduler::TokenSpan& span :
         sequence.spanning->piece.spans[sequence.spanning->rank]) {
      run(span.position, span.position + span.count);
    }
  }
  out.blocks = PlainIds(*sequence.blocks);
  return out;
}

engine::SequenceStep StepOf(const scheduler::StepSequence& sequence, const Buffers& buffers) {
  engine::SequenceStep step;
  step.tokens = buffers.tokens;
  step.position = sequence.position;
  step.block_table = buffers.blocks;
  step.sample = sequence.sample;
  step.sampling = buffers.sampling.get();
  step.token_index = static_cast<uint64_t>(sequence.token_index);
  step.prompt = sequence.spec->prompt;
  if (sequence.output != nullptr) step.output = *sequence.output;
  step.next_tokens = buffers.next_tokens;
  return step;
}

// A probe takes the likeliest token: of no request, so of no client's parameters.
std::shared_ptr<const engine::SamplingParams> ProbeSampling() {
  static const auto params =
      std::make_shared<const engine::SamplingParams>(engine::SamplingParams{.temperature = 0.0f});
  return params;
}

scheduler::StepResult ResultOf(const scheduler::StepSequence& sequence,
                               const engine::SequenceResult& result) {
  scheduler::StepResult out;
  out.status = result.status;
  if (!out.status.ok()) return out;
  if (sequence.sample) {
    out.token = result.sampled.token;
    out.payload = ToProto(result.sampled).SerializeAsString();
  }
  v1::SampledTokens logprobs;
  for (const engine::SampledToken& token : result.prompt_logprobs) {
    if (token.token >= 0) *logprobs.add_tokens() = ToProto(token);
  }
  out.prompt_logprobs = logprobs.SerializeAsString();
  return out;
}

}  // namespace

EngineRunner::EngineRunner(engine::Engine* engine, LayerDone layer_done, Done done, StepLog* log,
                           SpanningGroups* groups)
    : engine_(engine),
      layer_done_(std::move(layer_done)),
      done_(std::move(done)),
      log_(log),
      groups_(groups),
      thread_([this] {
        pthread_setname_np(pthread_self(), "engine");
        Loop();
      }) {}

EngineRunner::~EngineRunner() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void EngineRunner::Run(scheduler::RunStep step) {
  {
    std::lock_guard lock(mu_);
    next_ = std::move(step);
  }
  wake_.notify_one();
}

void EngineRunner::Loop() {
  for (;;) {
    scheduler::RunStep step;
    {
      std::unique_lock lock(mu_);
      wake_.wait(lock, [this] { return stopping_ || next_.has_value(); });
      if (stopping_) return;
      step = *std::exchange(next_, std::nullopt);
    }
    done_(Execute(step));
  }
}

std::shared_ptr<const engine::SamplingParams> EngineRunner::SamplingOf(
    const scheduler::RequestSpec& spec) {
  if (sampling_.size() > kSamplingCacheMax) sampling_.clear();
  auto& cached = sampling_[spec.id];
  if (cached == nullptr) cached = std::make_shared<engine::SamplingParams>(SamplingFrom(spec));
  return cached;
}

absl::Status EngineRunner::Step(const scheduler::RunStep& step,
                                const std::vector<engine::SequenceStep>& sequences) {
  if (!layer_done_) return engine_->Step(sequences, nullptr, &results_);
  return engine_->Step(
      sequences, [&](int layer) { layer_done_(step, layer); }, &results_);
}

absl::Status EngineRunner::StepTogether(const scheduler::RunStep& step,
                                        engine::SequenceStep sequence) {
  if (groups_ == nullptr) {
    return absl::InvalidArgumentError("this worker steps with no others");
  }
  absl::StatusOr<engine::SpanningStep> spanning =
      groups_->Enter(step.step, *step.sequences.front().spanning);
  if (!spanning.ok()) return spanning.status();
  sequence.spanning = &*spanning;
  const absl::Status status = Step(step, {sequence});
  groups_->Leave(status);
  return status;
}

scheduler::StepDone EngineRunner::Execute(const scheduler::RunStep& step) {
  std::vector<Buffers> buffers;
  buffers.reserve(step.sequences.size());
  std::vector<engine::SequenceStep> sequences;
  for (const scheduler::StepSequence& sequence : step.sequences) {
    buffers.push_back(BuffersOf(sequence));
    buffers.back().sampling = step.probe ? ProbeSampling() : SamplingOf(*sequence.spec);
    sequences.push_back(StepOf(sequence, buffers.back()));
  }
  scheduler::StepDone done{.step = step.step};
  const auto started = std::chrono::steady_clock::now();
  const bool together = sequences.size() == 1 && step.sequences.front().spanning != nullptr;
  done.status = together ? StepTogether(step, sequences.front()) : Step(step, sequences);
  if (!done.status.ok()) return done;
  if (log_ != nullptr) {
    log_->Add(step,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    done.results.push_back(ResultOf(step.sequences[i], results_[i]));
  }
  return done;
}

}  // namespace skein::services
