// Products of the same rows that are one.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
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

// Maps the columns of a product to rows of a matrix. They run in step, but before column at[i] the
// matrix skips skips[i] rows. A rank's slices of q | k | v are one product this way.
struct RowBands {
  static constexpr int64_t kNone = std::numeric_limits<int32_t>::max();
  std::array<int64_t, 2> at = {kNone, kNone};  // rising
  std::array<int64_t, 2> skips = {0, 0};

  bool plain() const { return at[0] == kNone; }
};

struct BandedProduct {
  Product product;  // its w and bias begin at the first band and count the columns
  RowBands bands;
};

// Joins a product to the first ones, if its weights lie behind theirs in rows of the same stride,
// its bias (or neither has one) as many entries behind, and its columns of out right behind.
// nullopt: they do not, that would be a third gap, or they span more than kNone / 8 rows.
inline std::optional<BandedProduct> JoinedInBands(const BandedProduct& first,
                                                  const Product& second) {
  const ConstMatrix& w = first.product.w;
  const auto row_bytes = w.stride * static_cast<int64_t>(BytesOf(w.dtype));
  const int64_t skipped = first.bands.skips[0] + first.bands.skips[1];
  const int64_t behind = static_cast<const char*>(second.w.data) -
                         (static_cast<const char*>(w.data) + (w.rows + skipped) * row_bytes);
  if (row_bytes == 0 || behind < 0 || behind % row_bytes != 0) return std::nullopt;
  const int64_t gap = behind / row_bytes;
  if (w.rows + skipped + gap + second.w.rows > RowBands::kNone / 8) return std::nullopt;
  // As they would be without gaps.
  Product near = second;
  near.w.data = static_cast<const char*>(w.data) + w.rows * row_bytes;
  if (!near.bias.empty()) {
    near.bias.data = static_cast<const char*>(near.bias.data) -
                     (skipped + gap) * static_cast<int64_t>(BytesOf(near.bias.dtype));
  }
  const std::optional<Product> joined = Joined(first.product, near);
  if (!joined.has_value()) return std::nullopt;
  BandedProduct out = {*joined, first.bands};
  if (gap == 0) return out;
  const size_t band = out.bands.plain() ? 0 : 1;
  if (out.bands.at[band] != RowBands::kNone) return std::nullopt;
  out.bands.at[band] = w.rows;
  out.bands.skips[band] = gap;
  return out;
}

}  // namespace skein::engine
