#include "bench/cuda/gpu_limits.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/cuda/gpu_timer.h"
#include "engine/base/dtype.h"

namespace skein::bench {
namespace {

constexpr int kSide = 8192;
constexpr size_t kSideBytes = size_t{2} * kSide * kSide;
constexpr size_t kCopyBytes = size_t{1} << 30;
constexpr int kRepeats = 3;  // after one that warms up

class CudaLimits final : public GpuLimits {
 public:
  CudaLimits(void* a, void* b, void* c, void* from, void* to)
      : a_(a), b_(b), c_(c), from_(from), to_(to) {
    Require(cudaStreamCreate(&stream_), "cudaStreamCreate");
    Require(cublasCreate(&cublas_), "cublasCreate");
    Require(cublasSetStream(cublas_, stream_), "cublasSetStream");
  }
  ~CudaLimits() override {
    cublasDestroy(cublas_);
    cudaStreamDestroy(stream_);
    for (void* memory : {a_, b_, c_, from_, to_}) cudaFree(memory);
  }

  double CopyBytesPerSecond() override {
    return 2.0 * kCopyBytes / Seconds([this] {
             Require(cudaMemcpyAsync(to_, from_, kCopyBytes, cudaMemcpyDeviceToDevice, stream_),
                     "cudaMemcpyAsync");
           });
  }

  double GemmFlopsPerSecond() override {
    return 2.0 * kSide * kSide * kSide / Seconds([this] {
             const float one = 1, zero = 0;
             Require(cublasGemmEx(cublas_, CUBLAS_OP_T, CUBLAS_OP_N, kSide, kSide, kSide, &one, a_,
                                  CUDA_R_16BF, kSide, b_, CUDA_R_16BF, kSide, &zero, c_,
                                  CUDA_R_16BF, kSide, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     "cublasGemmEx");
           });
  }

 private:
  template <typename Body>
  double Seconds(const Body& body) {
    body();
    GpuTimer timer(stream_);
    return timer.Seconds([&] {
      for (int i = 0; i < kRepeats; ++i) body();
    }) / kRepeats;
  }

  void *const a_, *const b_, *const c_, *const from_, *const to_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuLimits>> MakeGpuLimits() {
  std::mt19937 random(5);
  std::normal_distribution<float> draw;
  std::vector<engine::BF16> some(size_t{1} << 22);
  for (engine::BF16& value : some) value = engine::ToBF16(draw(random));
  void* memory[5] = {};
  const size_t bytes[5] = {kSideBytes, kSideBytes, kSideBytes, kCopyBytes, kCopyBytes};
  for (int i = 0; i < 5; ++i) {
    if (cudaMalloc(&memory[i], bytes[i]) != cudaSuccess) {
      for (void* made : memory) cudaFree(made);
      return absl::ResourceExhaustedError("no room on the GPU for the limits' 2.4 GiB");
    }
    const size_t piece = some.size() * sizeof(some[0]);
    for (size_t at = 0; at < bytes[i]; at += piece) {
      Require(cudaMemcpy(static_cast<std::byte*>(memory[i]) + at, some.data(), piece,
                         cudaMemcpyHostToDevice),
              "cudaMemcpy");
    }
  }
  return std::make_unique<CudaLimits>(memory[0], memory[1], memory[2], memory[3], memory[4]);
}

}  // namespace skein::bench
