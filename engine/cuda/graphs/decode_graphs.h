// DecodeGraphs: decode steps, up to their logits, as graphs (graph_recorder.h), one for each number
// of rows that batches are padded to. A step's ids, positions, spans, attention plan and block
// tables are copied, in one piece, to the place in device memory where the graph's kernels look for
// them; then the graph is launched. Tokens are the same bits as without: rows do not depend on what
// else is in a batch, and attention is cut in the same parts.
//
// The first step of a size is a rehearsal: it runs the very launches that the second one records,
// so nothing is loaded or chosen for the first time while work is recorded. When the device refuses
// to record, any launch within, or the graph, `warn` is told once, the step runs without a graph,
// and so do all that follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/attention/attention_plan.h"
#include "engine/cuda/graphs/graph_cache.h"
#include "engine/cuda/graphs/graph_recorder.h"
#include "engine/cuda/ops/cuda_ops.h"
#include "engine/cuda/ops/paged_tables.h"
#include "engine/device/device.h"
#include "engine/ops/decode_runner.h"

namespace skein::engine {

struct DecodeGraphsOptions {
  int64_t rows_max = 256;  // larger batches run without
  size_t graphs_max = 32;
};

// 1, 2, 4, then multiples of 8 up to 64 and of 32 beyond.
int64_t PaddedRows(int64_t rows);

class DecodeGraphs final : public DecodeRunner {
 public:
  // `ops` works on `device` and outlives this. RESOURCE_EXHAUSTED when there is no room for the
  // tables and attention's partial results of rows_max rows.
  static absl::StatusOr<std::unique_ptr<DecodeGraphs>> Make(
      std::shared_ptr<Device> device, CudaOps* ops, std::unique_ptr<GraphRecorder> recorder,
      const DecodeShape& shape, const DecodeGraphsOptions& options,
      std::function<void(const std::string&)> warn);
  ~DecodeGraphs() override;
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;

  int64_t RowsFor(std::span<const SequenceSpan> sequences) const override;
  void Run(std::span<const int32_t> ids, std::span<const int32_t> positions,
           std::span<const SequenceSpan> sequences, const std::function<void()>& step) override;

  struct Counts {
    int64_t plain = 0;  // steps that ran without a graph, rehearsals too
    int64_t recorded = 0;
    int64_t launched = 0;
  };
  const Counts& counts() const { return counts_; }
  const GraphCache& graphs() const { return graphs_; }

 private:
  // Where the tables of a step lie, in bytes from the begin of the arena.
  struct Places {
    size_t positions, spans, plan, tables;
  };

  DecodeGraphs(std::shared_ptr<Device> device, CudaOps* ops,
               std::unique_ptr<GraphRecorder> recorder, const DecodeShape& shape,
               const DecodeGraphsOptions& options, std::function<void(const std::string&)> warn);

  absl::Status Allocate();
  bool FitsAttention() const;
  DecodeGraphBounds BoundsOf(int64_t rows) const;
  Places PlacesOf(int64_t rows) const;
  absl::Status Rehearse(const RecordedStep& step, const std::function<void()>& run);
  absl::Status RunGraph(const RecordedStep& step, const std::function<void()>& run);
  absl::Status CopyTables(const RecordedStep& step, const Places& places);
  RecordedStep Placed(RecordedStep step, const Places& places) const;
  absl::StatusOr<std::unique_ptr<RecordedGraph>> Record(RecordedStep step,
                                                        const std::function<void()>& run);

  const std::shared_ptr<Device> device_;
  CudaOps* const ops_;
  const std::unique_ptr<GraphRecorder> recorder_;
  const DecodeShape shape_;
  const int64_t rows_max_;
  const bool flash_;  // attention by FlashAttention
  const std::function<void(const std::string&)> warn_;
  std::byte* arena_ = nullptr;  // device: a step's tables
  size_t arena_bytes_ = 0;
  void* scratch_ = nullptr;  // device: attention's partial results
  size_t scratch_bytes_ = 0;
  GraphCache graphs_;
  AttentionPlan plan_;
  PagedTables paged_;            // of the step, as host_
  std::vector<std::byte> host_;  // the arena's next contents
  bool refused_ = false;
  Counts counts_;
};

}  // namespace skein::engine
