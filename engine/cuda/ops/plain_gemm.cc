#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/ops/gemm.h"

namespace skein::engine {
namespace {

class PlainGemm final : public Gemm {
 public:
  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                CudaStream stream) override {
    PlainGemmKernel(x, w, bias, out, stream);
  }
};

}  // namespace

std::unique_ptr<Gemm> MakePlainGemm() { return std::make_unique<PlainGemm>(); }

}  // namespace skein::engine
