// DecodeRunner: how a device runs steps of one new token a sequence, which are launched much more
// often than they differ (engine/cuda: graphs that are recorded once and replayed). Used by the
// engine's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/kv/kv_spec.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// The values that are equal in all steps of a model.
struct DecodeShape {
  KvSpec kv;
  int query_heads = 0;
  int64_t rows_max = 0;  // of a step, padding included
  int64_t positions_max = 0;
};

class DecodeRunner {
 public:
  virtual ~DecodeRunner() = default;

  // Rows that a step of `sequences` is padded to, no fewer than they have and at most
  // DecodeShape::rows_max; 0: it is a step as any other (several tokens a sequence, too many
  // sequences, several layouts).
  virtual int64_t RowsFor(std::span<const SequenceSpan> sequences) const = 0;

  // Puts the work of `step` on the device: by calling it, or without when what it does for as many
  // rows is known. `step` calls Ops with these very ids, positions and sequences, and with the same
  // other arguments whenever it has as many rows. ids and positions [RowsFor(sequences)]; the
  // sequences' rows are 0, 1, …, and what becomes of those behind them is not said.
  virtual void Run(std::span<const int32_t> ids, std::span<const int32_t> positions,
                   std::span<const SequenceSpan> sequences, const std::function<void()>& step) = 0;
};

// `warn` is told what goes on more slowly than it could, and why.
using MakeDecodeRunner = std::function<absl::StatusOr<std::unique_ptr<DecodeRunner>>(
    const DecodeShape& shape, std::function<void(const std::string&)> warn)>;

}  // namespace skein::engine
