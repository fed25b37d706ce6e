// Products of the same rows that are one.
#pragma once

#include <optional>

#include "engine/ops/ops.h"

namespace skein::engine {

// Both products as one, where the second one's weights, bias (or neither has one) and columns of
// out lie right behind the first one's, and neither is of a slice of columns.
inline std::optional<Product> Joined(const Product& first, const Product& second) {
  const auto at = [](const ConstMatrix& m, int64_t elements) {
    return static_cast<const char*>(m.data) + elements * static_cast<int64_t>(BytesOf(m.dtype));
  };
  // `elements` of a behind its begin, in matrices of rows alike.
  const auto follows = [&](const ConstMatrix& a, const ConstMatrix& b, int64_t elements) {
    return a.dtype == b.dtype && at(a, elements) == b.data;
  };
  const ConstMatrix& w = first.w;
  const bool weights = w.cols == second.w.cols && w.stride == second.w.stride &&
                       follows(w, second.w, w.rows * w.stride);
  const bool biases = first.bias.empty()
                          ? second.bias.empty()
                          : !second.bias.empty() && follows(first.bias, second.bias, w.rows);
  const bool outs =
      first.out.stride == second.out.stride && follows(first.out, second.out, first.out.cols);
  const bool whole = first.slice.columns == 0 && second.slice.columns == 0;
  if (!weights || !biases || !outs || !whole) return std::nullopt;
  Product joined = first;
  joined.w.rows += second.w.rows;
  joined.out.cols += second.out.cols;
  if (!joined.bias.empty()) {
    joined.bias.cols += second.bias.cols;
    joined.bias.stride = joined.bias.cols;
  }
  return joined;
}

}  // namespace skein::engine
