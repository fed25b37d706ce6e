#include "engine/cuda/graphs/decode_graphs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/simt/launch_failures.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kAlignment = 256;  // of each table

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

bool TakesFlash(const KvSpec& kv) {
  const int64_t elements = kv.BlockBytes() / static_cast<int64_t>(BytesOf(kv.dtype));
  return FlashAttentionTakes({nullptr, kv.dtype, kv.head_dim, elements}, 1.0f);
}

// Block ids of a sequence at most.
int64_t BlocksMax(const DecodeShape& shape) {
  const int64_t tokens = shape.kv.block_tokens;
  return std::min((shape.positions_max + tokens - 1) / tokens, shape.kv.num_blocks);
}

}  // namespace

int64_t PaddedRows(int64_t rows) {
  if (rows <= 2) return rows;
  if (rows <= 4) return 4;
  return RoundUp(rows, rows <= 64 ? 8 : 32);
}

absl::StatusOr<std::unique_ptr<DecodeGraphs>> DecodeGraphs::Make(
    std::shared_ptr<Device> device, CudaOps* ops, std::unique_ptr<GraphRecorder> recorder,
    const DecodeShape& shape, const DecodeGraphsOptions& options,
    std::function<void(const std::string&)> warn) {
  std::unique_ptr<DecodeGraphs> graphs(new DecodeGraphs(std::move(device), ops, std::move(recorder),
                                                        shape, options, std::move(warn)));
  const absl::Status allocated = graphs->Allocate();
  if (!allocated.ok()) return allocated;
  return graphs;
}

DecodeGraphs::DecodeGraphs(std::shared_ptr<Device> device, CudaOps* ops,
                           std::unique_ptr<GraphRecorder> recorder, const DecodeShape& shape,
                           const DecodeGraphsOptions& options,
                           std::function<void(const std::string&)> warn)
    : device_(std::move(device)),
      ops_(ops),
      recorder_(std::move(recorder)),
      shape_(shape),
      rows_max_(std::min(options.rows_max, shape.rows_max)),
      flash_(TakesFlash(shape.kv)),
      warn_(std::move(warn)),
      graphs_(options.graphs_max),
      plan_(ops->attention_policy()) {}

DecodeGraphs::~DecodeGraphs() {
  if (arena_ != nullptr) device_->Free(arena_, arena_bytes_);
  if (scratch_ != nullptr) device_->Free(scratch_, scratch_bytes_);
}

// Allocates for steps of rows_max_ rows, which need the most.
absl::Status DecodeGraphs::Allocate() {
  if (!FitsAttention()) return absl::OkStatus();
  const int64_t ids = rows_max_ * BlocksMax(shape_);
  arena_bytes_ = PlacesOf(rows_max_).tables + static_cast<size_t>(ids) * sizeof(int32_t);
  const absl::StatusOr<void*> arena = device_->Alloc(arena_bytes_);
  if (!arena.ok()) return arena.status();
  arena_ = static_cast<std::byte*>(*arena);
  if (!flash_) return absl::OkStatus();
  scratch_bytes_ = AttentionScratchBytes(BoundsOf(rows_max_).partial_rows, shape_.kv.head_dim);
  const absl::StatusOr<void*> scratch = device_->Alloc(scratch_bytes_);
  if (!scratch.ok()) return scratch.status();
  scratch_ = *scratch;
  return absl::OkStatus();
}

// BoundDecode wants one tile for each sequence and KV head.
bool DecodeGraphs::FitsAttention() const {
  return !flash_ || shape_.query_heads / shape_.kv.kv_heads <= kAttentionRows[0];
}

DecodeGraphBounds DecodeGraphs::BoundsOf(int64_t rows) const {
  if (!flash_) return {};
  return BoundDecode(static_cast<int>(rows), shape_.query_heads, shape_.kv.kv_heads,
                     ops_->attention_policy());
}

DecodeGraphs::Places DecodeGraphs::PlacesOf(int64_t rows) const {
  const auto count = static_cast<size_t>(rows);
  Places places{};
  places.positions = Aligned(count * sizeof(int32_t));
  places.spans = places.positions + Aligned(count * sizeof(int32_t));
  places.plan = places.spans + Aligned(count * sizeof(DeviceSpan));
  places.tables = places.plan + Aligned(BoundsOf(rows).plan_bytes);
  return places;
}

int64_t DecodeGraphs::RowsFor(std::span<const SequenceSpan> sequences) const {
  const auto count = static_cast<int64_t>(sequences.size());
  if (refused_ || arena_ == nullptr || count == 0 || count > rows_max_) return 0;
  for (int64_t i = 0; i < count; ++i) {
    const SequenceSpan& s = sequences[static_cast<size_t>(i)];
    const bool decodes = s.token_begin == i && s.token_count == 1 && s.keys < 0;
    if (!decodes || s.layout.tp != 1) return 0;
  }
  return std::min(PaddedRows(count), rows_max_);
}

void DecodeGraphs::Run(std::span<const int32_t> ids, std::span<const int32_t> positions,
                       std::span<const SequenceSpan> sequences, const std::function<void()>& step) {
  if (refused_) {
    ++counts_.plain;
    return step();
  }
  RecordedStep recorded;
  recorded.ids = ids;
  recorded.positions = positions;
  recorded.sequences = sequences;
  const bool warm = graphs_.IsWarm(static_cast<int64_t>(ids.size()));
  const absl::Status ran = warm ? RunGraph(recorded, step) : Rehearse(recorded, step);
  if (ran.ok()) return;
  refused_ = true;
  warn_("decode steps run without graphs from here on: " + std::string(ran.message()));
  ++counts_.plain;
  step();
}

absl::Status DecodeGraphs::Rehearse(const RecordedStep& step, const std::function<void()>& run) {
  const Places places = PlacesOf(static_cast<int64_t>(step.ids.size()));
  const absl::Status copied = CopyTables(step, places);
  if (!copied.ok()) return copied;
  RecordedStep placed = Placed(step, places);
  placed.stream = ops_->own_stream();
  ops_->Record(&placed);
  run();
  ops_->Record(nullptr);
  ++counts_.plain;
  return absl::OkStatus();
}

absl::Status DecodeGraphs::RunGraph(const RecordedStep& step, const std::function<void()>& run) {
  const auto rows = static_cast<int64_t>(step.ids.size());
  const Places places = PlacesOf(rows);
  const absl::Status copied = CopyTables(step, places);
  if (!copied.ok()) return copied;
  RecordedGraph* graph = graphs_.Find(rows);
  if (graph == nullptr) {
    absl::StatusOr<std::unique_ptr<RecordedGraph>> made = Record(Placed(step, places), run);
    if (!made.ok()) return made.status();
    graph = graphs_.Put(rows, *std::move(made));
    ++counts_.recorded;
  }
  const absl::Status launched = graph->Launch();
  if (launched.ok()) ++counts_.launched;
  return launched;
}

absl::Status DecodeGraphs::CopyTables(const RecordedStep& step, const Places& places) {
  paged_.Build(step.sequences, shape_.kv);
  const size_t end = places.tables + paged_.ids().size_bytes();
  SKEIN_CHECK(end <= arena_bytes_);
  host_.resize(end);
  const auto put = [&](size_t at, auto values) {
    if (!values.empty()) std::memcpy(&host_[at], values.data(), values.size_bytes());
  };
  put(0, step.ids);
  put(places.positions, step.positions);
  put(places.spans, paged_.spans());
  // Rows behind the sequences find an empty span.
  DeviceSpan none = paged_.spans().back();
  none.token_count = 0;
  none.first_row = paged_.rows();
  for (size_t i = paged_.spans().size(); i < step.ids.size(); ++i) {
    put(places.spans + i * sizeof none, std::span(&none, 1));
  }
  put(places.tables, paged_.ids());
  if (flash_) {
    plan_.Build(paged_.spans(), shape_.query_heads, shape_.kv.head_dim);
    SKEIN_CHECK(places.plan + plan_.bytes().size() <= places.tables);
    put(places.plan, plan_.bytes());
  }
  return device_->Copy(arena_, host_.data(), end, CopyKind::kHostToDevice);
}

RecordedStep DecodeGraphs::Placed(RecordedStep step, const Places& places) const {
  const auto rows = static_cast<int32_t>(step.ids.size());
  step.query_heads = shape_.query_heads;
  step.device_ids = reinterpret_cast<const int32_t*>(arena_);
  step.device_positions = reinterpret_cast<const int32_t*>(arena_ + places.positions);
  step.batch = {reinterpret_cast<const DeviceSpan*>(arena_ + places.spans),
                reinterpret_cast<const int32_t*>(arena_ + places.tables), rows, rows};
  if (flash_) {
    const DecodeGraphBounds bounds = BoundsOf(rows);
    step.attention = {bounds.grid, arena_ + places.plan, scratch_, bounds.partial_rows};
  }
  return step;
}

absl::StatusOr<std::unique_ptr<RecordedGraph>> DecodeGraphs::Record(
    RecordedStep step, const std::function<void()>& run) {
  const absl::StatusOr<CudaStream> stream = recorder_->Begin();
  if (!stream.ok()) return stream.status();
  step.stream = *stream;
  const LaunchFailures failures;
  ops_->Record(&step);
  run();
  ops_->Record(nullptr);
  auto graph = recorder_->End();
  if (!failures.first().empty()) return absl::InternalError(failures.first());
  return graph;
}

}  // namespace skein::engine
