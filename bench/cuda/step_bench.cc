#include "bench/cuda/step_bench.h"

#include <algorithm>
#include <span>
#include <string>

#include "bench/engine/bench_timer.h"

namespace skein::bench {
namespace {

constexpr double kElementBytes = 2;

}  // namespace

StepCosts CostsOf(const engine::ModelConfig& config) {
  const double hidden = config.hidden_size, inner = config.intermediate_size;
  const double query = config.QueryColumns(), kv = config.KvColumns();
  const double layers = config.num_layers, vocabulary = config.vocab_size;
  const double layer = hidden * (2 * query + 2 * kv + 3 * inner);  // elements of its matrices
  StepCosts costs;
  costs.weight_bytes = (layers * layer + vocabulary * hidden) * kElementBytes;
  costs.kv_token_bytes = layers * 2 * kv * kElementBytes;
  costs.layer_flops = 2 * layers * layer;
  costs.head_flops = 2 * vocabulary * hidden;
  costs.attention_flops = layers * 4 * query;
  return costs;
}

int64_t BlocksFor(int64_t batch, int64_t tokens, int block_tokens) {
  return batch * ((tokens + block_tokens - 1) / block_tokens);
}

StepBench::StepBench(engine::Engine* engine, int64_t chunk_tokens)
    : engine_(engine), chunk_tokens_(chunk_tokens) {
  greedy_.temperature = 0.0f;
}

absl::StatusOr<double> StepBench::Prefill(int64_t tokens) {
  const absl::Status placed = Place(1, tokens, tokens);
  if (!placed.ok()) return placed;
  const double begin = SecondsNow(Clock::kWall);
  while (true) {
    const absl::StatusOr<bool> ran = RunChunk();
    if (!ran.ok()) return ran.status();
    if (!*ran) return SecondsNow(Clock::kWall) - begin;
  }
}

absl::Status StepBench::StartDecode(int64_t batch, int64_t context, int64_t steps) {
  const absl::Status placed = Place(batch, context, context + steps);
  if (!placed.ok()) return placed;
  while (true) {
    const absl::StatusOr<bool> ran = RunChunk();
    if (!ran.ok()) return ran.status();
    if (!*ran) return absl::OkStatus();
  }
}

absl::StatusOr<double> StepBench::DecodeStep() {
  std::vector<engine::SequenceStep> steps;
  for (Sequence& s : sequences_) {
    engine::SequenceStep step;
    step.tokens = {&s.next, 1};
    step.position = s.done;
    step.block_table = s.blocks;
    step.sample = true;
    step.sampling = &greedy_;
    steps.push_back(step);
  }
  const absl::StatusOr<double> seconds = Step(steps);
  if (!seconds.ok()) return seconds;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    ++sequences_[i].done;
    sequences_[i].next = results_[i].sampled.token;
  }
  return seconds;
}

// Sequences of prompts alone, with blocks dealt in turn.
absl::Status StepBench::Place(int64_t batch, int64_t tokens, int64_t room) {
  const engine::EngineSpec& spec = engine_->Spec();
  const int64_t blocks = BlocksFor(1, room, spec.kv.block_tokens);
  if (room > spec.max_positions || batch * blocks > spec.kv.num_blocks) {
    return absl::InvalidArgumentError("the engine has no room for " + std::to_string(batch) +
                                      " sequences of " + std::to_string(room) + " tokens");
  }
  sequences_.assign(static_cast<size_t>(batch), {});
  for (int64_t i = 0; i < batch; ++i) {
    Sequence& s = sequences_[static_cast<size_t>(i)];
    for (int64_t b = 0; b < blocks; ++b) s.blocks.push_back(static_cast<int32_t>(b * batch + i));
    for (int64_t t = 0; t < tokens; ++t) {
      s.prompt.push_back(static_cast<int32_t>((t * 7919 + i * 104729 + 3) % spec.vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StepBench::RunChunk() {
  std::vector<engine::SequenceStep> steps;
  std::vector<Sequence*> sampled;
  int64_t room = chunk_tokens_;
  for (Sequence& s : sequences_) {
    const auto prompt = static_cast<int64_t>(s.prompt.size());
    const int64_t count = std::min(room, prompt - s.done);
    if (count == 0) continue;
    room -= count;
    engine::SequenceStep step;
    step.tokens =
        std::span(s.prompt).subspan(static_cast<size_t>(s.done), static_cast<size_t>(count));
    step.position = s.done;
    step.block_table = s.blocks;
    step.sample = s.done + count == prompt;
    step.sampling = &greedy_;
    s.done += count;
    steps.push_back(step);
    sampled.push_back(step.sample ? &s : nullptr);
  }
  if (steps.empty()) return false;
  const absl::StatusOr<double> seconds = Step(steps);
  if (!seconds.ok()) return seconds.status();
  for (size_t i = 0; i < sampled.size(); ++i) {
    if (sampled[i] != nullptr) sampled[i]->next = results_[i].sampled.token;
  }
  return true;
}

absl::StatusOr<double> StepBench::Step(const std::vector<engine::SequenceStep>& steps) {
  const double begin = SecondsNow(Clock::kWall);
  const absl::Status status = engine_->Step(steps, nullptr, &results_);
  if (!status.ok()) return status;
  return SecondsNow(Clock::kWall) - begin;
}

}  // namespace skein::bench
