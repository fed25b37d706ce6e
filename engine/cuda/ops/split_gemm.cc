#include "engine/cuda/ops/split_gemm.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/cuda/kernels/kernels.h"

namespace skein::engine {
namespace {

constexpr int64_t kAlignment = 256;  // of parts, products and scales; 16 elements of a part's row

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

bool Splits(DType x, DType w) { return x == DType::kF32 && w != DType::kF32; }

int64_t PartsOf(DType w) { return w == DType::kF16 ? 2 : 3; }

// Where a run of `rows` rows has its scratch, in bytes from the begin.
struct Places {
  int64_t k_stride;  // of a part's row
  int64_t products;
  int64_t scales;
  int64_t end;
};

Places PlacesOf(int64_t rows, int64_t parts, int64_t k, int64_t n) {
  Places places{};
  places.k_stride = RoundUp(k, 16);
  places.products = RoundUp(rows * parts * places.k_stride * 2, kAlignment);
  places.scales = places.products + RoundUp(rows * parts * n * 4, kAlignment);
  places.end = places.scales + rows * 4;
  return places;
}

class SplitGemm final : public Gemm {
 public:
  SplitGemm(std::shared_ptr<Device> device, std::unique_ptr<Gemm> others, size_t scratch_bytes)
      : device_(std::move(device)), others_(std::move(others)), scratch_bytes_(scratch_bytes) {}
  ~SplitGemm() override {
    if (scratch_ != nullptr) device_->Free(scratch_, scratch_bytes_);
  }

  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                CudaStream stream) override {
    const int64_t at_once = Splits(x.dtype, w.dtype) && x.cols > 0 ? RowsAtOnce(x, w) : 0;
    if (at_once == 0 || !HasScratch()) return others_->Multiply(x, w, bias, out, stream);
    for (int64_t begin = 0; begin < x.rows; begin += at_once) {
      const int64_t rows = std::min(at_once, x.rows - begin);
      Run({static_cast<const float*>(x.data) + begin * x.stride, x.dtype, rows, x.cols, x.stride},
          w, bias,
          {static_cast<std::byte*>(out.data) +
               begin * out.stride * static_cast<int64_t>(BytesOf(out.dtype)),
           out.dtype, rows, out.cols, out.stride},
          stream);
    }
  }

  bool MultiplyBands(ConstMatrix x, const BandedProduct& one, CudaStream stream) override {
    return !Splits(x.dtype, one.product.w.dtype) && others_->MultiplyBands(x, one, stream);
  }

  // All parts of the rows are rows of one product.
  int64_t SkinnyRowsMax(DType x, DType w) const override {
    if (!Splits(x, w)) return others_->SkinnyRowsMax(x, w);
    return std::max(kSkinnyRowsMax, others_->SkinnyRowsMax(w, w) / PartsOf(w));
  }

 private:
  // 0: not even one row.
  int64_t RowsAtOnce(const ConstMatrix& x, const ConstMatrix& w) const {
    const int64_t parts = PartsOf(w.dtype);
    const int64_t a_row = PlacesOf(1, parts, x.cols, w.rows).end + 2 * kAlignment;
    int64_t rows = static_cast<int64_t>(scratch_bytes_) / a_row;
    // Rows whose results must not depend on their number all go where skinny products go.
    if (x.rows <= SkinnyRowsMax(x.dtype, w.dtype)) {
      rows = std::min(rows, SkinnyRowsMax(x.dtype, w.dtype));
    }
    return std::min(rows, x.rows);
  }

  // Not while work is recorded: the same product has run before.
  bool HasScratch() {
    if (scratch_ != nullptr || refused_) return scratch_ != nullptr;
    const absl::StatusOr<void*> made = device_->Alloc(scratch_bytes_);
    refused_ = !made.ok();
    if (made.ok()) scratch_ = *made;
    return made.ok();
  }

  void Run(const ConstMatrix& x, const ConstMatrix& w, const ConstVector& bias, const Matrix& out,
           CudaStream stream) {
    const int64_t parts = PartsOf(w.dtype);
    const Places places = PlacesOf(x.rows, parts, x.cols, w.rows);
    auto* const base = static_cast<std::byte*>(scratch_);
    const Matrix rows = {base, w.dtype, x.rows * parts, x.cols, places.k_stride};
    const Matrix products = {base + places.products, DType::kF32, x.rows * parts, w.rows, w.rows};
    auto* const scales =
        w.dtype == DType::kF16 ? reinterpret_cast<float*>(base + places.scales) : nullptr;
    SplitRowsKernel(x, rows, scales, stream);
    others_->Multiply(rows, w, {}, products, stream);
    JoinProductsKernel(products, scales, bias, out, stream);
  }

  const std::shared_ptr<Device> device_;
  const std::unique_ptr<Gemm> others_;
  const size_t scratch_bytes_;
  void* scratch_ = nullptr;
  bool refused_ = false;
};

}  // namespace

std::unique_ptr<Gemm> MakeSplitGemm(std::shared_ptr<Device> device, std::unique_ptr<Gemm> others,
                                    size_t scratch_bytes) {
  return std::make_unique<SplitGemm>(std::move(device), std::move(others), scratch_bytes);
}

}  // namespace skein::engine
