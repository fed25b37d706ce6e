#include "engine/cuda/skinny_gemm/skinny_gemm.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "engine/cuda/skinny_gemm/skinny_gemm_call.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

bool TakesDTypes(DType x, DType w) { return x == w && w != DType::kF32; }

bool Takes(const ConstMatrix& x, const ConstMatrix& w) {
  return TakesDTypes(x.dtype, w.dtype) && x.rows <= kSkinnyGemmRowsMax && x.cols > 0;
}

// Whether every row begins where a 16-byte move may.
bool IsAligned(const ConstMatrix& m) {
  constexpr uintptr_t kBytes = 16;
  return reinterpret_cast<uintptr_t>(m.data) % kBytes == 0 &&
         (m.rows <= 1 || static_cast<size_t>(m.stride) * BytesOf(m.dtype) % kBytes == 0);
}

class SkinnyGemm final : public Gemm {
 public:
  SkinnyGemm(std::shared_ptr<Device> device, const SkinnyGemmPolicy& policy,
             std::unique_ptr<Gemm> others, void* scratch)
      : device_(std::move(device)),
        policy_(policy),
        others_(std::move(others)),
        scratch_(scratch) {}
  ~SkinnyGemm() override { device_->Free(scratch_, kSkinnyGemmScratchBytes); }

  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                CudaStream stream) override {
    if (!Takes(x, w)) return others_->Multiply(x, w, bias, out, stream);
    SkinnyGemmOn(x, w, bias, {}, out, policy_, scratch_, stream);
  }

  bool MultiplyBands(ConstMatrix x, const BandedProduct& one, CudaStream stream) override {
    const Product& product = one.product;
    if (!Takes(x, product.w)) return others_->MultiplyBands(x, one, stream);
    SkinnyGemmOn(x, product.w, product.bias, one.bands, product.out, policy_, scratch_, stream);
    return true;
  }

  int64_t SkinnyRowsMax(DType x, DType w) const override {
    return TakesDTypes(x, w) ? kSkinnyGemmRowsMax : others_->SkinnyRowsMax(x, w);
  }

 private:
  const std::shared_ptr<Device> device_;
  const SkinnyGemmPolicy policy_;
  const std::unique_ptr<Gemm> others_;
  void* const scratch_;
};

}  // namespace

void LaunchSkinnyGemm(DType dtype, int shape, const SkinnyGemmArguments& arguments, int blocks,
                      CudaStream stream) {
  if (dtype == DType::kBF16) {
    LaunchSkinnyGemmBf16(shape, arguments, blocks, stream);
  } else {
    LaunchSkinnyGemmF16(shape, arguments, blocks, stream);
  }
}

void SkinnyGemmOn(const ConstMatrix& x, const ConstMatrix& w, const ConstVector& bias,
                  const RowBands& bands, const Matrix& out, const SkinnyGemmPolicy& policy,
                  void* scratch, CudaStream stream) {
  SKEIN_CHECK(Takes(x, w) && x.rows > 0 && w.rows > 0);
  SKEIN_CHECK(w.rows <= std::numeric_limits<int>::max() / 8 &&
              w.cols <= std::numeric_limits<int>::max() / 8);
  SkinnyGemmArguments a{};
  a.w = w.data;
  a.bias = bias.data;
  a.x_stride = x.stride;
  a.w_stride = w.stride;
  a.out_stride = out.stride;
  a.bias_dtype = bias.dtype;
  a.wide_out = out.dtype == DType::kF32;
  a.x_aligned = IsAligned(x);
  a.w_aligned = IsAligned(w);
  a.n = static_cast<int>(w.rows);
  a.k = static_cast<int>(w.cols);
  for (size_t i = 0; i < bands.at.size(); ++i) {
    a.band_at[i] = static_cast<int>(bands.at[i]);
    a.band_skips[i] = static_cast<int>(bands.skips[i]);
  }
  a.parts = PartsOf(w.rows, w.cols);
  a.partial = static_cast<float*>(scratch);
  a.counters = reinterpret_cast<int*>(static_cast<std::byte*>(scratch) + kSkinnyGemmPartialBytes);
  for (int64_t begin = 0; begin < x.rows;) {
    const SkinnyGemmGrid grid = GridFor(x.rows - begin, w.rows, a.parts, policy.shared_bytes_max);
    const SkinnyGemmShape& shape = kSkinnyGemmShapes[grid.shape];
    a.rows = static_cast<int>(std::min<int64_t>(shape.rows, x.rows - begin));
    a.items = grid.items;
    a.x = static_cast<const std::byte*>(x.data) +
          begin * x.stride * static_cast<int64_t>(BytesOf(x.dtype));
    a.out = static_cast<std::byte*>(out.data) +
            begin * out.stride * static_cast<int64_t>(BytesOf(out.dtype));
    LaunchSkinnyGemm(w.dtype, grid.shape, a, shape.blocks * policy.multiprocessors, stream);
    begin += a.rows;
  }
}

absl::StatusOr<std::unique_ptr<Gemm>> MakeSkinnyGemm(std::shared_ptr<Device> device,
                                                     const SkinnyGemmPolicy& policy,
                                                     std::unique_ptr<Gemm> others) {
  const absl::StatusOr<void*> scratch = device->Alloc(kSkinnyGemmScratchBytes);
  if (!scratch.ok()) return scratch.status();
  auto gemm = std::make_unique<SkinnyGemm>(device, policy, std::move(others), *scratch);
  const std::vector<int> zeros(kSkinnyGemmCounters);
  const absl::Status zeroed =
      device->Copy(static_cast<std::byte*>(*scratch) + kSkinnyGemmPartialBytes, zeros.data(),
                   zeros.size() * sizeof zeros[0], CopyKind::kHostToDevice);
  if (!zeroed.ok()) return zeroed;
  return gemm;
}

}  // namespace skein::engine
