#include "engine/cuda/ops/cublas_gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/ops/rows_bucket.h"
#include "engine/cuda/simt/launch_failures.h"
#include "engine/ops/ops.h"

namespace skein::engine {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr uint32_t kAlignmentMax = 256;
constexpr int kCandidates = 8;

void Require(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "cuBLASLt: %s: %s: the process ends\n", what, cublasGetStatusString(status));
  std::abort();
}

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// The largest power of two that every row's address is a multiple of.
uint32_t AlignmentOf(const ConstMatrix& m) {
  const auto bits = reinterpret_cast<uintptr_t>(m.data) |
                    (static_cast<uintptr_t>(m.stride) * BytesOf(m.dtype)) | kAlignmentMax;
  return static_cast<uint32_t>(bits & ~(bits - 1));
}

using Algorithm = std::optional<cublasLtMatmulAlgo_t>;

// The key by which an algorithm is chosen.
struct Shape {
  int64_t m, n, k;
  int64_t x_stride, w_stride, out_stride;
  DType dtype, out_dtype;
  uint32_t x_alignment, w_alignment, out_alignment;
  bool adds;  // to what is in `out`
  auto operator<=>(const Shape&) const = default;
};

// A row-major matrix as cuBLAS sees it: column-major, transposed.
class Layout {
 public:
  Layout(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    Require(cublasLtMatrixLayoutCreate(&layout_, TypeOf(dtype), static_cast<uint64_t>(cols),
                                       static_cast<uint64_t>(rows), stride),
            "cublasLtMatrixLayoutCreate");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class CublasGemm final : public Gemm {
 public:
  CublasGemm(std::shared_ptr<CudaDevice> device, void* workspace)
      : device_(std::move(device)), workspace_(workspace) {
    Require(cublasLtCreate(&handle_), "cublasLtCreate");
    Require(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            "cublasLtMatmulDescCreate");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    Require(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                           sizeof transpose),
            "transa");
  }
  ~CublasGemm() override {
    cublasLtMatmulDescDestroy(product_);
    cublasLtDestroy(handle_);
    device_->Free(workspace_, kWorkspaceBytes);
  }

  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                CudaStream stream) override {
    const Algorithm algorithm =
        x.dtype == w.dtype && x.cols > 0 ? AlgorithmFor(x, w, !bias.empty(), out) : std::nullopt;
    if (!algorithm) return PlainGemmKernel(x, w, bias, out, stream);
    if (!bias.empty()) BroadcastRowKernel(bias, out, stream);
    const float one = 1.0f, kept = bias.empty() ? 0.0f : 1.0f;
    const Layout a(w.dtype, w.rows, w.cols, w.stride), b(x.dtype, x.rows, x.cols, x.stride);
    const Layout d(out.dtype, out.rows, out.cols, out.stride);
    const cublasStatus_t launched = cublasLtMatmul(
        handle_, product_, &one, w.data, a.get(), x.data, b.get(), &kept, out.data, d.get(),
        out.data, d.get(), &*algorithm, workspace_, kWorkspaceBytes, stream);
    if (launched != CUBLAS_STATUS_SUCCESS) {
      LaunchFailed(std::string("cublasLtMatmul: ") + cublasGetStatusString(launched));
    }
  }

 private:
  // A bucket's, and what its last call used.
  struct Choice {
    Algorithm of_bucket;
    int64_t rows = 0;  // of the last call
    Algorithm of_rows;
  };

  Algorithm AlgorithmFor(const ConstMatrix& x, const ConstMatrix& w, bool adds, const Matrix& out) {
    Shape shape = {RowsBucket(x.rows), w.rows,         w.cols,           x.stride,
                   w.stride,           out.stride,     w.dtype,          out.dtype,
                   AlignmentOf(x),     AlignmentOf(w), AlignmentOf(out), adds};
    const auto [found, is_new] = choices_.try_emplace(shape);
    Choice& choice = found->second;
    if (is_new) choice = {Choose(shape), shape.m, {}};
    if (is_new) choice.of_rows = choice.of_bucket;
    // Skinny products share the bucket's, whatever their number of rows.
    const int64_t rows = x.rows <= kSkinnyRowsMax ? shape.m : x.rows;
    if (choice.rows != rows) {
      shape.m = choice.rows = rows;
      const bool takes = choice.of_bucket && Takes(shape, rows, *choice.of_bucket);
      choice.of_rows = takes ? choice.of_bucket : Choose(shape);
    }
    return choice.of_rows;
  }

  // The fastest by cuBLASLt's reckoning that takes skinny products as well as others; none when it
  // has none.
  Algorithm Choose(const Shape& s) {
    cublasLtMatmulPreference_t preference = nullptr;
    Require(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      Require(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.w_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.x_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.out_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.out_alignment);
    const Layout a(s.dtype, s.n, s.k, s.w_stride), b(s.dtype, s.m, s.k, s.x_stride);
    const Layout d(s.out_dtype, s.m, s.n, s.out_stride);
    cublasLtMatmulHeuristicResult_t found[kCandidates];
    int count = 0;
    const cublasStatus_t asked =
        cublasLtMatmulAlgoGetHeuristic(handle_, product_, a.get(), b.get(), d.get(), d.get(),
                                       preference, kCandidates, found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (asked != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    for (int i = 0; i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS &&
          (s.m > kSkinnyRowsMax || Takes(s, 1, found[i].algo))) {
        return found[i].algo;
      }
    }
    return std::nullopt;
  }

  // An algorithm that was chosen for other rows runs these, too.
  bool Takes(const Shape& s, int64_t rows, const cublasLtMatmulAlgo_t& algorithm) {
    const Layout a(s.dtype, s.n, s.k, s.w_stride), b(s.dtype, rows, s.k, s.x_stride);
    const Layout d(s.out_dtype, rows, s.n, s.out_stride);
    cublasLtMatmulHeuristicResult_t checked{};
    return cublasLtMatmulAlgoCheck(handle_, product_, a.get(), b.get(), d.get(), d.get(),
                                   &algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= kWorkspaceBytes;
  }

  const std::shared_ptr<CudaDevice> device_;
  void* const workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  // As many as there are products of the model times buckets.
  std::map<Shape, Choice> choices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> MakeCublasGemm(std::shared_ptr<CudaDevice> device) {
  const absl::StatusOr<void*> workspace = device->Alloc(kWorkspaceBytes);
  if (!workspace.ok()) return workspace.status();
  return std::make_unique<CublasGemm>(std::move(device), *workspace);
}

}  // namespace skein::engine
