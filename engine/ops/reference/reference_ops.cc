#include "engine/ops/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/ops/element.h"
#include "engine/ops/kv_address.h"
#include "engine/ops/ops_checks.h"

namespace skein::engine {
namespace {

double At(const ConstMatrix& m, int64_t row, int64_t col) {
  return LoadElement(m.data, m.dtype, row * m.stride + col);
}

void Put(const Matrix& m, int64_t row, int64_t col, double value) {
  StoreElement(m.data, m.dtype, row * m.stride + col, static_cast<float>(value));
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

void ReferenceOps::Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) {
  CheckEmbed(ids, table, out);
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t i = 0; i < out.cols; ++i) {
      Put(out, t, i, At(table, ids[static_cast<size_t>(t)], i));
    }
  }
}

void ReferenceOps::RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) {
  CheckRmsNorm(x, weight, out);
  const int64_t n = weight.cols;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t first = 0; first < x.cols; first += n) {
      double squares = 0;
      for (int64_t i = first; i < first + n; ++i) squares += At(x, r, i) * At(x, r, i);
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
      for (int64_t i = 0; i < n; ++i) {
        Put(out, r, first + i, At(x, r, first + i) * inverse * At(weight, 0, i));
      }
    }
  }
}

void ReferenceOps::AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) {
  CheckAddRmsNorm(x, y, weight, out);
  Add(x, y);
  RmsNorm(x, weight, eps, out);
}

void ReferenceOps::MatMuls(ConstMatrix x, std::span<const Product> products) {
  CheckMatMuls(x, products);
  for (const auto& [w, bias, slice, out] : products) {
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int64_t n = 0; n < w.rows; ++n) {
        double sum = bias.empty() ? 0.0 : At(bias, 0, n);
        for (int64_t k = 0; k < x.cols; ++k) sum += At(x, m, k) * At(w, n, k);
        Put(out, m, n, sum);
      }
    }
  }
}

void ReferenceOps::Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) {
  CheckRope(x, positions, table);
  const int64_t half = table.head_dim / 2;
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* cos = table.cos + positions[static_cast<size_t>(t)] * half;
    const float* sin = table.sin + positions[static_cast<size_t>(t)] * half;
    for (int64_t head = 0; head < x.cols; head += table.head_dim) {
      for (int64_t i = 0; i < half; ++i) {
        const double a = At(x, t, head + i);
        const double b = At(x, t, head + i + half);
        Put(x, t, head + i, a * cos[i] - b * sin[i]);
        Put(x, t, head + i + half, b * cos[i] + a * sin[i]);
      }
    }
  }
}

void ReferenceOps::StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
                           const KvLayerView& kv, const Rotation& rotation) {
  CheckStoreKv(k, v, sequences, kv, rotation);
  if (!rotation.positions.empty()) Rope(k, rotation.positions, rotation.table);
  for (const SequenceSpan& s : sequences) {
    for (int64_t row = 0; row < s.token_count; ++row) {
      for (int64_t col = 0; col < k.cols; ++col) {
        const int64_t t = s.token_begin + row;
        const int head = static_cast<int>(col / kv.spec->head_dim);
        const int64_t in_head = col % kv.spec->head_dim;
        const int64_t key =
            KvElementOf(s, *kv.spec, KvSide::kKey, head, s.position + row) + in_head;
        const int64_t value =
            KvElementOf(s, *kv.spec, KvSide::kValue, head, s.position + row) + in_head;
        StoreElement(kv.base, kv.spec->dtype, key, static_cast<float>(At(k, t, col)));
        StoreElement(kv.base, kv.spec->dtype, value, static_cast<float>(At(v, t, col)));
      }
    }
  }
}

namespace {

// One query row and head: softmax over keys 0 … seen - 1, two passes.
void AttendOneHead(const ConstMatrix& q, int64_t t, int head, int kv_head, int64_t seen,
                   const SequenceSpan& s, const KvLayerView& kv, float scale, const Matrix& out,
                   const Matrix& lse) {
  const int dim = kv.spec->head_dim;
  const auto element = [&](KvSide side, int64_t position, int i) -> double {
    return LoadElement(kv.base, kv.spec->dtype,
                       KvElementOf(s, *kv.spec, side, kv_head, position) + i);
  };
  std::vector<double> scores(static_cast<size_t>(seen));
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t p = 0; p < seen; ++p) {
    double dot = 0;
    for (int i = 0; i < dim; ++i) {
      dot += At(q, t, int64_t{head} * dim + i) * element(KvSide::kKey, p, i);
    }
    scores[static_cast<size_t>(p)] = dot * scale;
    largest = std::max(largest, dot * scale);
  }
  double total = 0;
  std::vector<double> sums(static_cast<size_t>(dim), 0.0);
  for (int64_t p = 0; p < seen; ++p) {
    const double weight = std::exp(scores[static_cast<size_t>(p)] - largest);
    total += weight;
    for (int i = 0; i < dim; ++i) {
      sums[static_cast<size_t>(i)] += weight * element(KvSide::kValue, p, i);
    }
  }
  for (int i = 0; i < dim; ++i) {
    Put(out, t, int64_t{head} * dim + i, seen == 0 ? 0.0 : sums[static_cast<size_t>(i)] / total);
  }
  if (!lse.empty()) Put(lse, t, head, largest + std::log(total));
}

}  // namespace

void ReferenceOps::PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences,
                                  const KvLayerView& kv, float scale, Matrix out, Matrix lse) {
  CheckPagedAttention(q, sequences, kv, out, lse);
  const int heads = static_cast<int>(q.cols / kv.spec->head_dim);
  for (const SequenceSpan& s : sequences) {
    const int group = heads / KvHeads(s.layout, *kv.spec);
    for (int64_t row = 0; row < s.token_count; ++row) {
      for (int head = 0; head < heads; ++head) {
        const int64_t seen = s.keys >= 0 ? s.keys : s.position + row + 1;
        AttendOneHead(q, s.token_begin + row, head, head / group, seen, s, kv, scale, out, lse);
      }
    }
  }
}

void ReferenceOps::MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b,
                                  ConstMatrix lse_b) {
  CheckMergeAttention(out_a, lse_a, out_b, lse_b);
  const int64_t dim = out_a.cols / lse_a.cols;
  for (int64_t t = 0; t < lse_a.rows; ++t) {
    for (int64_t head = 0; head < lse_a.cols; ++head) {
      const double a = At(lse_a, t, head);
      const double b = At(lse_b, t, head);
      const double largest = std::max(a, b);
      if (std::isinf(largest) && largest < 0) continue;  // neither saw a key: a stays as it is
      const double share_a = std::exp(a - largest);
      const double share_b = std::exp(b - largest);
      for (int64_t i = head * dim; i < (head + 1) * dim; ++i) {
        // A side that saw no key may hold anything, NaN too.
        const double from_a = share_a == 0 ? 0 : share_a * At(out_a, t, i);
        const double from_b = share_b == 0 ? 0 : share_b * At(out_b, t, i);
        Put(out_a, t, i, (from_a + from_b) / (share_a + share_b));
      }
      Put(lse_a, t, head, largest + std::log(share_a + share_b));
    }
  }
}

void ReferenceOps::SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) {
  CheckSwiGlu(gate, up, out);
  for (int64_t t = 0; t < gate.rows; ++t) {
    for (int64_t i = 0; i < gate.cols; ++i) {
      const double g = At(gate, t, i);
      Put(out, t, i, g * Sigmoid(g) * At(up, t, i));
    }
  }
}

void ReferenceOps::Add(Matrix x, ConstMatrix y) {
  CheckAdd(x, y);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) Put(x, t, i, At(x, t, i) + At(y, t, i));
  }
}

}  // namespace skein::engine
