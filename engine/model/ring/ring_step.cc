#include "engine/model/ring/ring_step.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/model/forward/layer_parts.h"
#include "engine/model/group/agreement.h"
#include "engine/model/ring/ring_check.h"
#include "engine/model/ring/ring_moves.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

Matrix RowsFrom(const Matrix& m, int64_t begin, int64_t rows) {
  SKEIN_CHECK(m.dtype == DType::kF32 && begin + rows <= m.rows);
  return {static_cast<float*>(m.data) + begin * m.stride, m.dtype, rows, m.cols, m.stride};
}

// The words that each rank sends when the ranks meet: whether it runs the step, the fingerprint,
// whether it attends in the last layer, and the blocks of a segment.
constexpr size_t kWords = 4;

// A digest of everything that all ranks must have been given alike.
uint64_t FingerprintOf(const RingStep& step, const KvSpec& kv, std::string_view model_hash) {
  Digest digest(model_hash);
  const auto add = [&](int64_t value) { digest.Add(static_cast<uint64_t>(value)); };
  for (const int64_t value :
       {int64_t{kv.num_layers}, int64_t{kv.kv_heads}, int64_t{kv.head_dim},
        int64_t{kv.block_tokens}, static_cast<int64_t>(kv.dtype), int64_t{step.moves != nullptr}}) {
    add(value);
  }
  for (const RankShare& share : step.shares) {
    add(share.history_tokens);
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
    : options_(options), device_(device), segment_(kv) {
  segment_.num_blocks = std::max<int64_t>(1, options.segment_bytes / kv.BlockBytes());
  count_.resize(static_cast<size_t>(std::max(segment_.num_blocks, options.tokens_max)));
  std::iota(count_.begin(), count_.end(), 0);
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
  if (activation != DType::kF32) runner->merged_ = rows(config.QueryColumns());
  runner->partial_ = rows(config.QueryColumns());
  runner->merged_lse_ = rows(config.num_heads);
  runner->partial_lse_ = rows(config.num_heads);
  // A few blocks may be less than what the ranks' agreement takes.
  const int64_t ring_bytes =
      KvRing::kBuffers * runner->segment_.num_blocks * runner->segment_.BlockBytes();
  runner->ring_ = static_cast<std::byte*>(allocate(std::max<int64_t>(ring_bytes, 64 << 10)));
  if (!status.ok()) return status;
  return runner;
}

absl::Status RingRunner::Meet(const RingStep& step, bool attends_last, absl::Status* verdict) {
  attends_last_.assign(step.comm == nullptr ? 1 : static_cast<size_t>(step.comm->Size()),
                       attends_last);
  step_blocks_ = segment_.num_blocks;
  if (step.comm == nullptr) return absl::OkStatus();
  const uint64_t mine[kWords] = {
      verdict->ok() ? 1u : 0u, FingerprintOf(step, segment_, options_.model_hash),
      attends_last ? 1u : 0u, static_cast<uint64_t>(segment_.num_blocks)};
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
  list_ = step.history_blocks;
  const auto tokens = static_cast<int64_t>(sequence.tokens.size());
  const int64_t block_tokens = segment_.block_tokens;
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
  const RingLayout layout(ring.shares, segment_.block_tokens, step_blocks_);
  RingProgress progress(ring);
  const bool alone = layout.ranks() == 1;
  const bool moves = !alone && ring.moves != nullptr;
  if (alone) progress.Reach(Milestone::kPassed, segment_.num_layers);
  if (!moves) progress.Reach(Milestone::kMoved, segment_.num_layers);
  const RingOptions ring_options = {.device = device_,
                                    .layers = state.kv,
                                    .kv = model.kv,
                                    .buffers = ring_,
                                    .segment_blocks = step_blocks_,
                                    .attends_last = attends_last_};
  std::optional<KvRing> kv_ring;
  std::optional<KvMover> mover;
  if (!alone) kv_ring.emplace(ring, layout, list_, ring_options, &progress);
  if (moves) {
    mover.emplace(ring, device_, state.kv, model.kv, step_blocks_ * segment_.BlockBytes(),
                  &staging_, &progress);
  }
  absl::Status status = RunRingLayers(
      {model, layout, kv_ring ? &*kv_ring : nullptr, progress, state}, batch, layer_done);
  if (!status.ok()) return status;
  // Ring and mover have made their last calls.
  status = MeetAtEnd(ring);
  if (!status.ok()) progress.Fail(status);
  return progress.status();
}

absl::Status RingRunner::RunRingLayers(const Step& step, const Batch& batch,
                                       const std::function<void(int)>& layer_done) {
  const Model& model = step.model;
  RunState& state = step.state;
  const int last = model.config->num_layers - 1;
  const bool runs = batch.tokens() > 0;
  if (runs) {
    model.ops->Embed(batch.ids, model.weights->embedding,
                     FirstRows(state.residual, batch.tokens()));
  }
  Batch selected;
  for (int layer = 0; layer <= last; ++layer) {
    if (runs) WriteKv(model, batch, layer, state);
    step.progress.Reach(Milestone::kWritten, layer + 1);
    if (layer_done) layer_done(layer);
    if (runs && layer == last) selected = KeepLogitRows(model, batch, layer, state);
    const Batch& rows = layer == last ? selected : batch;
    if (rows.tokens() == 0) {  // nor will a later layer have any
      if (step.ring != nullptr) step.progress.Reach(Milestone::kConsumed, step.ring->fills());
      continue;
    }
    MakeQueries(model, rows, layer, state);
    const absl::Status attended = Attend(step, rows, layer);
    if (!attended.ok()) return attended;
    ProjectAttention(model, rows, layer, state);
    FeedForward(model, rows, layer, state);
    if (layer == last) EndLayers(model, rows, state);
  }
  // Other ranks may still need blocks of this rank when its own attention has ended.
  step.progress.Await(Milestone::kPassed, last + 1);
  step.progress.Await(Milestone::kMoved, last + 1);
  return step.progress.status();
}

Matrix RingRunner::Merged(const Step& step) const {
  return merged_.empty() ? step.state.attention : merged_;
}

// state.attention = attention of state.query.
absl::Status RingRunner::Attend(const Step& step, const Batch& rows, int layer) {
  const int64_t tokens = rows.tokens();
  if (!step.progress.Await(Milestone::kMoved, layer + 1)) return step.progress.status();
  AttendOwn(step, rows, layer);
  if (step.ring == nullptr) return absl::OkStatus();
  for (int64_t segment = 0; segment < step.layout.segments(); ++segment) {
    for (int hop = 1; hop < step.layout.ranks(); ++hop) {
      const int64_t fill = step.ring->FillOf(layer, segment, hop);
      if (!step.progress.Await(Milestone::kFilled, fill + 1)) return step.progress.status();
      AttendArrived(step, rows, step.ring->RankBefore(hop), segment, step.ring->BufferOf(fill));
      step.progress.Reach(Milestone::kConsumed, fill + 1);
    }
  }
  if (!merged_.empty()) {  // converts
    step.model.ops->Embed(std::span(count_).first(static_cast<size_t>(tokens)),
                          FirstRows(merged_, tokens), FirstRows(step.state.attention, tokens));
  }
  return absl::OkStatus();
}

void RingRunner::AttendOwn(const Step& step, const Batch& rows, int layer) {
  const int64_t tokens = rows.tokens();
  const bool alone = step.ring == nullptr;
  step.model.ops->PagedAttention(FirstRows(step.state.query, tokens), rows.sequences,
                                 {step.state.kv[layer], step.model.kv}, AttentionScale(step.model),
                                 FirstRows(alone ? step.state.attention : Merged(step), tokens),
                                 alone ? Matrix{} : FirstRows(merged_lse_, tokens));
}

void RingRunner::AttendArrived(const Step& step, const Batch& rows, int rank, int64_t segment,
                               std::byte* buffer) {
  const std::vector<VisibleRows> visible = step.layout.RowsThatSee(rank, segment, rows.positions);
  if (visible.empty()) return;
  std::vector<SequenceSpan> spans;
  for (const VisibleRows& v : visible) {
    spans.push_back(
        {v.begin, v.count, 0, std::span(count_).first(segment_.num_blocks), KvLayout{}, v.keys});
  }
  const int64_t tokens = rows.tokens();
  Ops& ops = *step.model.ops;
  ops.PagedAttention(FirstRows(step.state.query, tokens), spans, {buffer, &segment_},
                     AttentionScale(step.model), FirstRows(partial_, tokens),
                     FirstRows(partial_lse_, tokens));
  const int64_t first = visible.front().begin;
  const int64_t count = tokens - first;
  ops.MergeAttention(RowsFrom(Merged(step), first, count), RowsFrom(merged_lse_, first, count),
                     RowsFrom(partial_, first, count), RowsFrom(partial_lse_, first, count));
}

}  // namespace skein::engine
