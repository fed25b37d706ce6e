#include "engine/cuda/gemm.h"
#include "engine/cuda/kernels/kernels.h"

namespace skein::engine {
namespace {

class PlainGemm final : public Gemm {
 public:
  explicit PlainGemm(CudaStream stream) : stream_(stream) {}

  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out) override {
    PlainGemmKernel(x, w, bias, out, stream_);
  }

 private:
  const CudaStream stream_;
};

}  // namespace

std::unique_ptr<Gemm> MakePlainGemm(CudaStream stream) {
  return std::make_unique<PlainGemm>(stream);
}

}  // namespace skein::engine
