#include "engine/model/ring/ring_step.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/model/group/agreement.h"
#include "engine/model/layers/layer_loop.h"
#include "engine/model/layers/local_feed_forward.h"
#include "engine/model/ring/ring_attention.h"
#include "engine/model/ring/ring_check.h"
#include "engine/model/ring/ring_moves.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// The words that each rank sends when the ranks meet: whether it runs the step, the fingerprint,
// whether it attends in the last layer, and the blocks of a segment.
constexpr size_t kWords = 4;

// A digest of everything that all ranks must have been given alike.
uint64_t FingerprintOf(const RingStep& step, const KvSpec& kv, std::string_view model_hash,
                       int64_t key_segment) {
  Digest digest(model_hash);
  const auto add = [&](int64_t value) { digest.Add(static_cast<uint64_t>(value)); };
  for (const int64_t value : {int64_t{kv.num_layers}, int64_t{kv.kv_heads}, int64_t{kv.head_dim},
                              int64_t{kv.block_tokens}, static_cast<int64_t>(kv.dtype),
                              int64_t{step.moves != nullptr}, key_segment}) {
    add(value);
  }
  for (const RankShare& share : step.shares) {
    add(share.history_tokens);
    if (key_segment > 0) digest.AddIds(share.history);
    add(static_cast<int64_t>(share.spans.size()));
    for (const TokenSpan& span : share.spans) {
      add(span.position);
      add(span.count);
    }
  }
  return digest.value();
}

}  // namespace

RingRunner::RingRunner(const RingStepOptions& options, const KvSpec& kv, Device* device)
    : options_(options), device_(device) {
  buffers_.segment = kv;
  buffers_.window = kv;
  buffers_.window.num_blocks = options.key_segment / kv.block_tokens;
  buffers_.segment.num_blocks = std::max<int64_t>(1, options.segment_bytes / kv.BlockBytes());
  buffers_.count.resize(
      static_cast<size_t>(std::max(buffers_.segment.num_blocks, options.tokens_max)));
  std::iota(buffers_.count.begin(), buffers_.count.end(), 0);
}

absl::StatusOr<std::unique_ptr<RingRunner>> RingRunner::Create(const RingStepOptions& options,
                                                               const ModelConfig& config,
                                                               DType activation, const KvSpec& kv,
                                                               Device* device) {
  std::unique_ptr<RingRunner> runner(new RingRunner(options, kv, device));
  absl::Status status;
  const auto allocate = [&](int64_t bytes) -> void* {
    if (!status.ok()) return nullptr;
    absl::StatusOr<DeviceBuffer> buffer =
        DeviceBuffer::Allocate(device, static_cast<size_t>(bytes));
    if (!buffer.ok()) {
      status = buffer.status();
      return nullptr;
    }
    runner->owned_.push_back(*std::move(buffer));
    return runner->owned_.back().data();
  };
  const auto rows = [&](int64_t cols) -> Matrix {
    return {allocate(options.tokens_max * cols * static_cast<int64_t>(sizeof(float))), DType::kF32,
            options.tokens_max, cols, cols};
  };
  if (activation != DType::kF32) runner->buffers_.merged = rows(config.QueryColumns());
  runner->buffers_.partial = rows(config.QueryColumns());
  runner->buffers_.merged_lse = rows(config.num_heads);
  runner->buffers_.partial_lse = rows(config.num_heads);
  // A few blocks may be less than what the ranks' agreement takes.
  const int64_t ring_blocks = std::max(KvRing::kBuffers * runner->buffers_.segment.num_blocks,
                                       2 * runner->buffers_.window.num_blocks);
  const int64_t ring_bytes = ring_blocks * kv.BlockBytes();
  runner->ring_ = static_cast<std::byte*>(allocate(std::max<int64_t>(ring_bytes, 64 << 10)));
  if (!status.ok()) return status;
  return runner;
}

absl::Status RingRunner::Meet(const RingStep& step, bool attends_last, absl::Status* verdict) {
  attends_last_.assign(step.comm == nullptr ? 1 : static_cast<size_t>(step.comm->Size()),
                       attends_last);
  step_blocks_ = buffers_.segment.num_blocks;
  if (step.comm == nullptr) return absl::OkStatus();
  const uint64_t mine[kWords] = {
      verdict->ok() ? 1u : 0u,
      FingerprintOf(step, buffers_.segment, options_.model_hash, options_.key_segment),
      attends_last ? 1u : 0u, static_cast<uint64_t>(buffers_.segment.num_blocks)};
  const absl::StatusOr<std::vector<uint64_t>> words =
      GatherValues(step.comm, device_, mine, ring_, step.deadline);
  const absl::Status met = words.ok() ? TakeWords(step, *words, verdict) : words.status();
  if (met.ok()) return met;
  RingProgress progress(step);
  progress.Fail(met);
  return progress.status();
}

// All ranks have the same words, so all come to the same end.
absl::Status RingRunner::TakeWords(const RingStep& step, std::span<const uint64_t> words,
                                   absl::Status* verdict) {
  const auto word = [&](size_t rank, size_t i) { return words[rank * kWords + i]; };
  const auto own = static_cast<size_t>(step.comm->Rank());
  for (size_t rank = 0; rank < attends_last_.size(); ++rank) {
    if (word(rank, 0) != 0) continue;
    if (verdict->ok()) *verdict = RefusedBy(rank);
    return absl::OkStatus();
  }
  for (size_t rank = 0; rank < attends_last_.size(); ++rank) {
    if (word(rank, 1) != word(own, 1)) {
      return absl::InvalidArgumentError("ring: rank " + std::to_string(rank) +
                                        " has other shares, another model or another KV shape");
    }
    attends_last_[rank] = word(rank, 2) != 0;
    const auto blocks = static_cast<int64_t>(std::min<uint64_t>(word(rank, 3), INT64_MAX));
    step_blocks_ = std::min(step_blocks_, std::max<int64_t>(1, blocks));
  }
  return absl::OkStatus();
}

void RingRunner::Place(const SequenceStep& sequence, Batch* batch) {
  const RingStep& step = *sequence.ring;
  const size_t rank = step.comm == nullptr ? 0 : static_cast<size_t>(step.comm->Rank());
  const RankShare& share = step.shares[rank];
  const std::span<const int32_t> history = NumbersOf(step.history_blocks);
  list_.assign(history.begin(), history.end());
  const auto tokens = static_cast<int64_t>(sequence.tokens.size());
  const int64_t block_tokens = buffers_.segment.block_tokens;
  const auto blocks = static_cast<size_t>((tokens + block_tokens - 1) / block_tokens);
  list_.insert(list_.end(), sequence.block_table.begin(),
               sequence.block_table.begin() + static_cast<std::ptrdiff_t>(blocks));
  batch->sequences.assign(1, {0, tokens, share.history_tokens, list_, sequence.layout});
  batch->positions.clear();
  for (const TokenSpan& span : share.spans) {
    for (int64_t i = 0; i < span.count; ++i) {
      batch->positions.push_back(static_cast<int32_t>(span.position + i));
    }
  }
}

absl::Status RingRunner::Run(const Model& model, const RingStep& ring, const Batch& batch,
                             const std::function<void(int)>& layer_done, RunState& state) {
  const bool alone = ring.shares.size() == 1;
  const int64_t window_blocks = alone ? 0 : buffers_.window.num_blocks;
  const RingLayout layout(ring.shares, buffers_.segment.block_tokens, step_blocks_, window_blocks);
  RingProgress progress(ring);
  const bool moves = !alone && ring.moves != nullptr;
  if (alone) progress.Reach(Milestone::kPassed, buffers_.segment.num_layers);
  if (!moves) progress.Reach(Milestone::kMoved, buffers_.segment.num_layers);
  const RingOptions ring_options = {.device = device_,
                                    .layers = state.kv,
                                    .kv = model.kv,
                                    .buffers = ring_,
                                    .segment_blocks = step_blocks_,
                                    .window_blocks = window_blocks,
                                    .attends_last = attends_last_};
  std::optional<KvRing> kv_ring;
  std::optional<KvMover> mover;
  if (!alone) kv_ring.emplace(ring, layout, list_, ring_options, &progress);
  if (moves) {
    mover.emplace(ring, device_, state.kv, model.kv, step_blocks_ * buffers_.segment.BlockBytes(),
                  &staging_, &progress);
  }
  RingAttention attention({model, layout, kv_ring ? &*kv_ring : nullptr, progress, state, buffers_},
                          &batch);
  LocalFeedForward feed_forward(&model, &state);
  absl::Status status =
      RunLayers({attention, feed_forward, *model.source}, model.config->num_layers, layer_done);
  if (!status.ok()) return status;
  // Ring and mover have made their last calls.
  status = MeetAtEnd(ring);
  if (!status.ok()) progress.Fail(status);
  return progress.status();
}

}  // namespace skein::engine
