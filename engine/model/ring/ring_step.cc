#include "engine/model/ring/ring_step.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/model/layers/layer_loop.h"
#include "engine/model/layers/local_feed_forward.h"
#include "engine/model/ring/ring_attention.h"
#include "engine/model/ring/ring_check.h"
#include "engine/model/ring/ring_moves.h"
#include "engine/model/ring/tensor_feed_forward.h"
#include "engine/model/ring/tensor_projections.h"
#include "engine/parallel/step_digest.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::engine {
namespace {

std::vector<bool> AttendsLast(const RingStep& step) {
  std::vector<bool> attends;
  for (const RankShare& share : step.shares) attends.push_back(share.wants_logits);
  return attends;
}

// An error of RunLayers. Of a ring's or mover's collective `progress` knows it already. Of others
// only a tensor group has any; else it is of the weights, which are here where there is such a
// group.
absl::Status OfLayers(const absl::Status& status, const RingProgress& progress,
                      const RingStep& step) {
  const bool of_collective = !progress.status().ok() || step.tp > 1;
  if (of_collective || absl::IsDeadlineExceeded(status)) return status;
  return absl::UnavailableError(status.message());
}

}  // namespace

RingRunner::RingRunner(const RingStepOptions& options, const EngineSpec& spec, Device* device)
    : options_(options), spec_(spec), device_(device) {
  const KvSpec& kv = spec.kv;
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
                                                               DType activation,
                                                               const EngineSpec& spec,
                                                               Device* device) {
  std::unique_ptr<RingRunner> runner(new RingRunner(options, spec, device));
  const absl::Status allocated = runner->AllocateBuffers(config, activation);
  if (!allocated.ok()) return allocated;
  return runner;
}

absl::Status RingRunner::AllocateBuffers(const ModelConfig& config, DType activation) {
  absl::Status status;
  const auto allocate = [&](int64_t bytes) -> void* {
    if (!status.ok()) return nullptr;
    absl::StatusOr<DeviceBuffer> buffer =
        DeviceBuffer::Allocate(device_, static_cast<size_t>(bytes));
    if (!buffer.ok()) {
      status = buffer.status();
      return nullptr;
    }
    owned_.push_back(*std::move(buffer));
    return owned_.back().data();
  };
  const auto rows = [&](int64_t cols, DType dtype = DType::kF32) -> Matrix {
    return {allocate(options_.tokens_max * cols * static_cast<int64_t>(BytesOf(dtype))), dtype,
            options_.tokens_max, cols, cols};
  };
  if (activation != DType::kF32) buffers_.merged = rows(config.QueryColumns());
  buffers_.partial = rows(config.QueryColumns());
  buffers_.merged_lse = rows(config.num_heads);
  buffers_.partial_lse = rows(config.num_heads);
  const int64_t ring_blocks =
      std::max(KvRing::kBuffers * buffers_.segment.num_blocks, 2 * buffers_.window.num_blocks);
  ring_ = static_cast<std::byte*>(allocate(ring_blocks * spec_.kv.BlockBytes()));
  if (options_.tp_max > 1) {
    const int64_t hidden = config.hidden_size;
    const int64_t query = int64_t{config.num_heads / 2} * config.head_dim;
    const int64_t all = query + int64_t{2} * ((config.num_kv_heads + 1) / 2) * config.head_dim;
    tensor_ = {rows(std::max(hidden, query), activation), rows(std::max(hidden, all)),
               rows(std::max(hidden, all))};
    counts_ =
        static_cast<int64_t*>(allocate(kSharedRanksMax * static_cast<int64_t>(sizeof(int64_t))));
  }
  return status;
}

void RingRunner::Agree(const SequenceStep& sequence) {
  const RingStep& step = *sequence.ring;
  if (step.comm == nullptr) return;
  const uint64_t digest =
      DigestOfRing(sequence, spec_, options_.key_segment, buffers_.segment.num_blocks);
  // Ranks of which some share and others do not are found out, too.
  TagRing(step, step.tp > 1 && !Shares(step) ? Mix64(digest) : digest);
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

absl::StatusOr<std::vector<int64_t>> RingRunner::TellLogitRows(const RingStep& step, int64_t own) {
  const auto ranks = static_cast<size_t>(step.comm->Size());
  const auto rank = static_cast<size_t>(step.comm->Rank());
  const size_t bytes = ranks * sizeof(int64_t);
  told_counts_.assign(ranks, own);
  absl::Status status =
      device_->Copy(counts_ + rank, &told_counts_[rank], sizeof(int64_t), CopyKind::kHostToDevice);
  if (status.ok()) {
    status = step.comm->AllGather(std::as_bytes(std::span(counts_ + rank, 1)),
                                  std::as_writable_bytes(std::span(counts_, ranks)), step.deadline);
  }
  if (status.ok()) {
    status = device_->Copy(told_counts_.data(), counts_, bytes, CopyKind::kDeviceToHost);
  }
  if (status.ok()) status = device_->Synchronize();
  if (!status.ok()) return status;
  const auto tp = static_cast<std::ptrdiff_t>(step.tp);
  const auto first = told_counts_.begin() + static_cast<std::ptrdiff_t>(rank) / tp * tp;
  return std::vector<int64_t>(first, first + tp);
}

absl::Status RingRunner::Run(const Model& model, WeightSource* slices, const RingStep& ring,
                             const Batch& batch, const std::function<void(int)>& layer_queued,
                             RunState& state) {
  const bool alone = ring.shares.size() == 1;
  const int64_t window_blocks = alone ? 0 : buffers_.window.num_blocks;
  const RingLayout layout(ring.shares, buffers_.segment.block_tokens, buffers_.segment.num_blocks,
                          window_blocks);
  RingProgress progress(ring);
  std::optional<TensorRows> tensor;
  std::optional<TensorProjections> shared;
  if (Shares(ring)) {
    auto told = TellLogitRows(ring, static_cast<int64_t>(batch.logit_rows.size()));
    if (!told.ok()) {
      progress.Fail(told.status());
      return progress.status();
    }
    tensor.emplace(ring, &tensor_, buffers_.count, model.ops, *std::move(told));
    shared.emplace(&model, &*tensor, &state);
  }
  const bool moves = !alone && ring.moves != nullptr;
  if (alone) progress.Reach(Milestone::kPassed, buffers_.segment.num_layers);
  if (!moves) progress.Reach(Milestone::kMoved, buffers_.segment.num_layers);
  const RingOptions ring_options = {.device = device_,
                                    .layers = state.kv,
                                    .kv = model.kv,
                                    .buffers = ring_,
                                    .segment_blocks = buffers_.segment.num_blocks,
                                    .window_blocks = window_blocks,
                                    .attends_last = AttendsLast(ring)};
  std::optional<KvRing> kv_ring;
  std::optional<KvMover> mover;
  if (!alone) kv_ring.emplace(ring, layout, list_, ring_options, &progress);
  if (moves) {
    mover.emplace(ring, device_, state.kv, model.kv,
                  buffers_.segment.num_blocks * buffers_.segment.BlockBytes(), &staging_,
                  &progress);
  }
  RingAttention attention({model, layout, kv_ring ? &*kv_ring : nullptr,
                           shared ? &*shared : nullptr, progress, state, buffers_},
                          &batch);
  absl::Status status =
      RunParts(model, slices, layer_queued, attention, tensor ? &*tensor : nullptr, state);
  if (!status.ok()) {
    // Wakes ring and mover, which wait for this layer, and the other ranks.
    progress.Fail(OfLayers(status, progress, ring));
    return progress.status();
  }
  // Ring and mover have made their last calls.
  status = MeetAtEnd(ring);
  if (!status.ok()) progress.Fail(status);
  return progress.status();
}

absl::Status RingRunner::RunParts(const Model& model, WeightSource* slices,
                                  const std::function<void(int)>& layer_queued,
                                  RingAttention& attention, TensorRows* tensor, RunState& state) {
  const int layers = model.config->num_layers;
  if (tensor == nullptr) {
    LocalFeedForward feed_forward(&model, &state);
    return RunLayers({attention, feed_forward, *model.source}, layers, layer_queued);
  }
  TensorFeedForward feed_forward(&model, tensor, &state);
  return RunLayers({attention, feed_forward, *slices}, layers, layer_queued);
}

}  // namespace skein::engine
