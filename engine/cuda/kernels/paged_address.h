// Rows of a PagedBatch and elements of its KV, for kernels. (engine/ops/kv_address.h is the same on
// the host.) Included from .cu files only, after simt.h.
#pragma once

#include "engine/cuda/kernels/paged.h"
#include "engine/cuda/simt/simt.h"

namespace skein::engine {

// The span that holds row `row` of all spans laid end to end, 0 <= row < batch.rows.
__device__ inline int SpanOfRow(const PagedBatch& batch, int row) {
  int low = 0, high = batch.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (batch.spans[middle].first_row <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  // Empty spans share their first_row with what follows: the last one of them holds the row.
  return low;
}

// Keys that row `row_in_span` of the span sees.
__device__ inline int64_t KeysSeen(const DeviceSpan& span, int64_t row_in_span) {
  return span.keys >= 0 ? span.keys : span.position + row_in_span + 1;
}

// Elements from the layer's base to head_dim elements of the key (value: side = 1) at `position`.
__device__ inline int64_t KvElement(const PagedBatch& batch, const DeviceSpan& span,
                                    const DeviceKv& kv, int side, int head, int64_t position) {
  const int64_t block = batch.tables[span.table_begin + position / span.block_tokens];
  const int64_t row =
      (int64_t{side} * span.kv_heads + head) * span.block_tokens + position % span.block_tokens;
  return block * kv.block_elements + row * kv.head_dim;
}

}  // namespace skein::engine
