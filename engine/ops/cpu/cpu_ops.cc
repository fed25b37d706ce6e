#include "engine/ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cpu/attention_units.h"
#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/cpu/scratch.h"
#include "engine/ops/kv_address.h"
#include "engine/ops/ops_checks.h"

namespace skein::engine {
namespace {

// Element-wise loops smaller than this stay on the caller's thread.
constexpr int64_t kShareElementsMin = 16 << 10;
// As few split attention tiles are merged on one thread.
constexpr int64_t kMergedTilesMin = 8;
// Reproducible attention merges results of so many positions each, or of as few more as make whole
// blocks.
constexpr int64_t kSegmentKeysMin = 512;
// More rows than any call has.
constexpr int64_t kAnyRows = int64_t{1} << 40;

const void* RowOf(const ConstMatrix& m, int64_t row) {
  return static_cast<const std::byte*>(m.data) +
         row * m.stride * static_cast<int64_t>(BytesOf(m.dtype));
}

void* RowOf(const Matrix& m, int64_t row) {
  return static_cast<std::byte*>(m.data) + row * m.stride * static_cast<int64_t>(BytesOf(m.dtype));
}

const float* FloatRow(const ConstMatrix& m, int64_t row) {
  return static_cast<const float*>(RowOf(m, row));
}

float* FloatRow(const Matrix& m, int64_t row) { return static_cast<float*>(RowOf(m, row)); }

class CpuOps final : public Ops {
 public:
  CpuOps(int threads, CpuIsa isa, bool reproducible)
      : kernels_(KernelsFor(isa)),
        reproducible_(reproducible),
        pool_(threads),
        mat_mul_(&kernels_, &pool_, reproducible),

        attention_scratch_(static_cast<size_t>(threads)) {}

  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override {
    CheckEmbed(ids, table, out);
    ForRows(out.rows, out.cols, [&](int64_t t) {
      kernels_.rows.convert(RowOf(table, ids[static_cast<size_t>(t)]), table.dtype, RowOf(out, t),
                            out.dtype, out.cols);
    });
  }

  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override {
    CheckRmsNorm(x, weight, out);
    const int64_t out_bytes = static_cast<int64_t>(BytesOf(out.dtype));
    ForRows(x.rows, x.cols, [&](int64_t r) {
      for (int64_t first = 0; first < x.cols; first += weight.cols) {
        kernels_.rows.rms_norm(FloatRow(x, r) + first, weight.data, weight.dtype, eps,
                               static_cast<std::byte*>(RowOf(out, r)) + first * out_bytes,
                               out.dtype, weight.cols);
      }
    });
  }

  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override {
    CheckAddRmsNorm(x, y, weight, out);
    ForRows(x.rows, x.cols, [&](int64_t r) {
      kernels_.rows.add(FloatRow(x, r), FloatRow(y, r), x.cols);
      kernels_.rows.rms_norm(FloatRow(x, r), weight.data, weight.dtype, eps, RowOf(out, r),
                             out.dtype, x.cols);
    });
  }

  void MatMuls(ConstMatrix x, std::span<const Product> products) override {
    CheckMatMuls(x, products);
    mat_mul_.Run(x, products);
  }

  int64_t SkinnyRowsMax(DType x, DType w) const override {
    return reproducible_ ? kAnyRows : kSkinnyRowsMax;
  }

  int64_t KeySegment(int block_tokens) const override {
    if (!reproducible_) return 0;
    return (kSegmentKeysMin + block_tokens - 1) / block_tokens * block_tokens;
  }

  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override {
    CheckRope(x, positions, table);
    ForRows(x.rows, x.cols, [&](int64_t t) { RotateRow(x, t, positions, table); });
  }

  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override {
    CheckStoreKv(k, v, sequences, kv, rotation);
    stored_ends_.clear();
    int64_t rows = 0;
    for (const SequenceSpan& s : sequences) stored_ends_.push_back(rows += s.token_count);
    ForRows(rows, 2 * k.cols, [&](int64_t r) {
      const auto end = std::upper_bound(stored_ends_.begin(), stored_ends_.end(), r);
      const SequenceSpan& s = sequences[static_cast<size_t>(end - stored_ends_.begin())];
      const int64_t row = r - (*end - s.token_count);
      if (!rotation.positions.empty()) {
        RotateRow(k, s.token_begin + row, rotation.positions, rotation.table);
      }
      StoreToken(k, v, s, row, kv);
    });
  }

  ThreadPool* HostThreads() override { return &pool_; }

  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override;
  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override;

  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    CheckSwiGlu(gate, up, out);
    ForRows(gate.rows, gate.cols, [&](int64_t t) {
      kernels_.rows.swiglu(FloatRow(gate, t), FloatRow(up, t), RowOf(out, t), out.dtype, out.cols);
    });
  }

  void Add(Matrix x, ConstMatrix y) override {
    CheckAdd(x, y);
    ForRows(x.rows, x.cols,
            [&](int64_t t) { kernels_.rows.add(FloatRow(x, t), FloatRow(y, t), x.cols); });
  }

 private:
  // Calls body(row) for all rows, on several threads when they are worth it.
  template <typename Body>
  void ForRows(int64_t rows, int64_t row_elements, const Body& body) {
    const int64_t grain = 1 + kShareElementsMin / std::max<int64_t>(1, row_elements);
    pool_.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) body(r);
    });
  }

  void RotateRow(const Matrix& x, int64_t t, std::span<const int32_t> positions,
                 const RopeTable& table) const {
    const int64_t half = table.head_dim / 2;
    const int64_t angle = positions[static_cast<size_t>(t)] * half;
    for (int64_t head = 0; head < x.cols; head += table.head_dim) {
      kernels_.rows.rope(FloatRow(x, t) + head, table.cos + angle, table.sin + angle, half);
    }
  }

  void StoreToken(const ConstMatrix& k, const ConstMatrix& v, const SequenceSpan& s, int64_t row,
                  const KvLayerView& kv) const {
    const KvSpec& spec = *kv.spec;
    const auto store = [&](const ConstMatrix& from, KvSide side, int head) {
      const int64_t to = KvElementOf(s, spec, side, head, s.position + row);
      kernels_.rows.convert(
          FloatRow(from, s.token_begin + row) + int64_t{head} * spec.head_dim, DType::kF32,
          static_cast<std::byte*>(kv.base) + to * static_cast<int64_t>(BytesOf(spec.dtype)),
          spec.dtype, spec.head_dim);
    };
    for (int head = 0; head < KvHeads(s.layout, spec); ++head) {
      store(k, KvSide::kKey, head);
      store(v, KvSide::kValue, head);
    }
  }

  void AttendWindows(const AttentionUnit& unit, std::byte* scratch) const;
  void MergeSplitTile(const SplitTile& tile) const;

  const Kernels kernels_;
  const bool reproducible_;
  ThreadPool pool_;
  MatMulRunner mat_mul_;
  AttentionUnits units_;
  std::vector<int64_t> stored_ends_;  // of StoreKv's call: rows up to the end of each sequence
  std::vector<Scratch> attention_scratch_;
};

// How two partial softmaxes weigh in their merge.
struct MergeShares {
  float a = 0.0f;
  float b = 0.0f;
  float lse = 0.0f;
};

MergeShares SharesOf(float lse_a, float lse_b) {
  const float largest = std::max(lse_a, lse_b);
  const float a = std::exp(lse_a - largest);
  const float b = std::exp(lse_b - largest);
  return {a / (a + b), b / (a + b), largest + std::log(a + b)};
}

constexpr float kNoKey = -std::numeric_limits<float>::infinity();

void CpuOps::PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences,
                            const KvLayerView& kv, float scale, Matrix out, Matrix lse) {
  CheckPagedAttention(q, sequences, kv, out, lse);
  units_.Build(q, sequences, kv, scale, out, lse, KeySegment(kv.spec->block_tokens),
               pool_.threads());
  const auto run = [&](int thread) {
    const auto [begin, end] = units_.UnitsOf(thread);
    if (begin == end) return;
    std::byte* scratch = attention_scratch_[static_cast<size_t>(thread)].Get(units_.ScratchBytes());
    for (size_t i = begin; i < end; ++i) AttendWindows(units_.units()[i], scratch);
  };
  if (units_.units().size() == 1) {
    for (int thread = 0; thread < pool_.threads(); ++thread) run(thread);
  } else {
    pool_.RunOnEach(run);
  }
  const std::span<const SplitTile> split = units_.split_tiles();
  pool_.ParallelFor(static_cast<int64_t>(split.size()), kMergedTilesMin,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        MergeSplitTile(split[static_cast<size_t>(i)]);
                      }
                    });
}

// (out, lse) of one row and head becomes its merge with another partial attention.
void MergeRow(const RowKernels& rows, float* out, float* lse, const float* other, float other_lse,
              int64_t dim) {
  if (other_lse == kNoKey) return;
  if (*lse == kNoKey) {
    std::copy(other, other + dim, out);
    *lse = other_lse;
    return;
  }
  const MergeShares shares = SharesOf(*lse, other_lse);
  rows.mix(out, shares.a, other, shares.b, dim);
  *lse = shares.lse;
}

// Writes the results of a unit's row r.
void WriteRow(const RowKernels& rows, const AttentionUnit& u, int64_t r, const float* out,
              float lse) {
  const int64_t t = r / u.group, g = r % u.group;
  const int64_t element = t * u.out_stride + g * u.head_dim;
  rows.convert(
      out, DType::kF32,
      static_cast<std::byte*>(u.out) + element * static_cast<int64_t>(BytesOf(u.out_dtype)),
      u.out_dtype, u.head_dim);
  if (u.lse != nullptr) u.lse[t * u.lse_stride + g] = lse;
}

// A unit whose keys are of several windows, window by window. Behind the kernel's own scratch are
// the results so far and those of a window.
void CpuOps::AttendWindows(const AttentionUnit& unit, std::byte* scratch) const {
  const int64_t window = units_.window();
  if (window == 0 || unit.key_end - unit.key_begin / window * window <= window) {
    return kernels_.attend(unit, scratch);
  }
  const int64_t rows = int64_t{unit.tokens} * unit.group, dim = unit.head_dim;
  auto* merged = reinterpret_cast<float*>(scratch + AttentionScratchBytes(rows, dim));
  float* partial = merged + rows * dim;
  float* merged_lse = partial + rows * dim;
  float* partial_lse = merged_lse + rows;
  std::fill(merged, merged + rows * dim, 0.0f);
  std::fill(merged_lse, merged_lse + rows, kNoKey);
  AttentionUnit u = unit;
  u.out = partial;
  u.out_dtype = DType::kF32;
  u.out_stride = unit.group * dim;
  u.lse = partial_lse;
  u.lse_stride = unit.group;
  for (u.key_begin = unit.key_begin; u.key_begin < unit.key_end; u.key_begin = u.key_end) {
    u.key_end = std::min(unit.key_end, (u.key_begin / window + 1) * window);
    kernels_.attend(u, scratch);
    for (int64_t r = 0; r < rows; ++r) {
      MergeRow(kernels_.rows, merged + r * dim, merged_lse + r, partial + r * dim, partial_lse[r],
               dim);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    WriteRow(kernels_.rows, unit, r, merged + r * dim, merged_lse[r]);
  }
}

void CpuOps::MergeSplitTile(const SplitTile& tile) const {
  const AttentionUnit& u = tile.whole;
  const int64_t rows = int64_t{u.tokens} * u.group;
  std::vector<float> merged(static_cast<size_t>(u.head_dim));
  for (int64_t r = 0; r < rows; ++r) {
    std::fill(merged.begin(), merged.end(), 0.0f);
    float lse = kNoKey;
    for (int64_t part = 0; part < tile.parts; ++part) {
      MergeRow(kernels_.rows, merged.data(), &lse, tile.partial + (part * rows + r) * u.head_dim,
               tile.lse[part * rows + r], u.head_dim);
    }
    WriteRow(kernels_.rows, u, r, merged.data(), lse);
  }
}

void CpuOps::MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) {
  CheckMergeAttention(out_a, lse_a, out_b, lse_b);
  const int64_t dim = out_a.cols / lse_a.cols;
  ForRows(lse_a.rows, out_a.cols, [&](int64_t t) {
    for (int64_t head = 0; head < lse_a.cols; ++head) {
      MergeRow(kernels_.rows, FloatRow(out_a, t) + head * dim, FloatRow(lse_a, t) + head,
               FloatRow(out_b, t) + head * dim, FloatRow(lse_b, t)[head], dim);
    }
  });
}

}  // namespace

bool ReproducibleCostsLittle(CpuIsa isa) {
  if (isa == CpuIsa::kAuto) isa = BestIsa();
  return isa == CpuIsa::kAvx512 || isa == CpuIsa::kAvx2;
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsOptions& options) {
  if (options.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads must be at least 1, not ", options.threads));
  }
  if (!IsSupported(options.isa)) {
    const std::string_view name = NameOf(options.isa);
    return absl::InvalidArgumentError(
        absl::StrCat("this CPU has no ", absl::string_view(name.data(), name.size())));
  }
  const CpuIsa isa = options.isa == CpuIsa::kAuto ? BestIsa() : options.isa;
  return std::unique_ptr<Ops>(std::make_unique<CpuOps>(options.threads, isa, options.reproducible));
}

}  // namespace skein::engine
