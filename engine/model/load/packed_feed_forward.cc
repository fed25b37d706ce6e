#include "engine/model/load/packed_feed_forward.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int64_t kAlignment = 256;

int64_t RowBytes(const ConstMatrix& m) { return m.cols * static_cast<int64_t>(BytesOf(m.dtype)); }

// In the order in which they are packed.
template <typename Weights>
auto MatricesOf(Weights& w) {
  return std::array{&w.gate.weight, &w.up.weight, &w.down.weight,
                    &w.gate.bias,   &w.up.bias,   &w.down.bias};
}

// Copies bytes [begin, end) of the matrix without gaps to `to`.
void CopyBytes(const ConstMatrix& m, int64_t begin, int64_t end, std::byte* to) {
  const int64_t row_bytes = RowBytes(m);
  const int64_t stride_bytes = m.stride * static_cast<int64_t>(BytesOf(m.dtype));
  const auto* data = static_cast<const std::byte*>(m.data);
  if (m.stride == m.cols) {
    std::memcpy(to, data + begin, static_cast<size_t>(end - begin));
    return;
  }
  while (begin < end) {
    const int64_t row = begin / row_bytes, in_row = begin % row_bytes;
    const int64_t count = std::min(row_bytes - in_row, end - begin);
    std::memcpy(to, data + row * stride_bytes + in_row, static_cast<size_t>(count));
    to += count;
    begin += count;
  }
}

}  // namespace

PackedFeedForward::PackedFeedForward(const FeedForwardWeights& weights) : shapes_(weights) {
  for (const ConstMatrix* m : MatricesOf(weights)) {
    if (m->empty()) {
      offsets_.push_back(-1);
      continue;
    }
    const bool behind_gate = (m == &weights.up.weight && m->dtype == weights.gate.weight.dtype) ||
                             (m == &weights.up.bias && !weights.gate.bias.empty() &&
                              m->dtype == weights.gate.bias.dtype);
    if (!behind_gate) bytes_ = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
    offsets_.push_back(bytes_);
    bytes_ += m->rows * RowBytes(*m);
  }
}

FeedForwardWeights PackedFeedForward::At(const void* packed) const {
  FeedForwardWeights w = shapes_;
  size_t i = 0;
  for (ConstMatrix* m : MatricesOf(w)) {
    const int64_t offset = offsets_[i++];
    if (offset < 0) continue;
    m->data = static_cast<const std::byte*>(packed) + offset;
    m->stride = m->cols;
  }
  return w;
}

void PackedFeedForward::Pack(const FeedForwardWeights& weights, int64_t offset,
                             std::span<std::byte> to) const {
  const int64_t end = offset + static_cast<int64_t>(to.size());
  SKEIN_CHECK(offset >= 0 && end <= bytes_);
  size_t i = 0;
  for (const ConstMatrix* m : MatricesOf(weights)) {
    const int64_t begins = offsets_[i++];
    if (begins < 0) continue;
    const int64_t from = std::max(offset, begins);
    const int64_t until = std::min(end, begins + m->rows * RowBytes(*m));
    if (from < until) CopyBytes(*m, from - begins, until - begins, to.data() + (from - offset));
  }
}

}  // namespace skein::engine
