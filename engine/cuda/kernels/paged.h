// A ragged batch and a layer's KV blocks as kernels see them: SequenceSpan and KvLayerView
// (engine/ops/ops.h) with the tables in device memory. paged_address.h finds rows and elements.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace skein::engine {

struct DeviceSpan {
  int64_t token_begin;   // first row in the batch
  int64_t position;      // of that row
  int64_t keys;          // >= 0: every row sees keys 0 … keys - 1; else causal
  int32_t token_count;   // rows
  int32_t first_row;     // rows of the spans before this one
  int32_t table_begin;   // of its block ids in PagedBatch::tables
  int32_t block_tokens;  // tokens a block in its layout
  int32_t kv_heads;      // heads a block in its layout
  int32_t reserved;
};

struct PagedBatch {
  const DeviceSpan* spans;  // [count], device
  const int32_t* tables;    // block ids of all spans, device
  int32_t count;
  int32_t rows;  // of all spans together; graphs have more, which belong to none
};

struct DeviceKv {
  void* base;  // device: blocks of block_elements elements
  DType dtype;
  int32_t head_dim;
  int64_t block_elements;
};

}  // namespace skein::engine
