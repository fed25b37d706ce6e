// Rectangles of matrices. Internal to engine/model.
#pragma once

#include <cstddef>
#include <span>

#include "engine/base/tensor.h"
#include "engine/parallel/shard_layout.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

inline Matrix PartOf(const Matrix& m, const ShardRange& rows, const ShardRange& cols) {
  SKEIN_CHECK(rows.end() <= m.rows && cols.end() <= m.cols);
  auto* data = static_cast<std::byte*>(m.data) +
               (rows.begin * m.stride + cols.begin) * static_cast<int64_t>(BytesOf(m.dtype));
  return {data, m.dtype, rows.count, cols.count, m.stride};
}

inline Matrix ColumnsOf(const Matrix& m, const ShardRange& cols) {
  return PartOf(m, {0, m.rows}, cols);
}

inline Matrix RowsOf(const Matrix& m, const ShardRange& rows) {
  return PartOf(m, rows, {0, m.cols});
}

// The bytes of a matrix without gaps.
inline std::span<std::byte> BytesOf(const Matrix& m) {
  SKEIN_CHECK(m.rows <= 1 || m.stride == m.cols);
  return {static_cast<std::byte*>(m.data), static_cast<size_t>(m.rows * m.cols) * BytesOf(m.dtype)};
}

}  // namespace skein::engine
