#include <cublas_v2.h>

#include <utility>

#include "bench/cuda/gpu_limits.h"
#include "bench/cuda/gpu_timer.h"
#include "bench/cuda/product_backend.h"
#include "engine/cuda/device/cuda_device.h"

namespace skein::bench {
namespace {

template <typename T>
T Opened(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "product_bench: %s\n", value.status().ToString().c_str());
  std::exit(1);
}

// As PyTorch's linear layers: bf16 in and out.
class Cublas {
 public:
  explicit Cublas(cudaStream_t stream) {
    Require(cublasCreate(&cublas_), "cublasCreate");
    Require(cublasSetStream(cublas_, stream), "cublasSetStream");
  }
  void Multiply(const engine::ConstMatrix& x, const engine::ConstMatrix& w,
                const engine::Matrix& out) const {
    const float one = 1, zero = 0;
    const auto n = static_cast<int>(w.rows), m = static_cast<int>(x.rows),
               k = static_cast<int>(w.cols);
    Require(cublasGemmEx(cublas_, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, w.data, CUDA_R_16BF, k,
                         x.data, CUDA_R_16BF, k, &zero, out.data, CUDA_R_16BF, n,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
  }

 private:
  cublasHandle_t cublas_ = nullptr;  // until the process ends
};

}  // namespace

ProductBackend OpenProductBackend() {
  const auto gpu = Opened(engine::OpenCudaDevice("cuda:0"));
  std::printf("%s, %d multiprocessors\n", gpu->Info().name.c_str(), gpu->Info().multiprocessors);
  ProductBackend backend;
  backend.device = gpu;
  backend.stream = gpu->Stream();
  backend.policy = {gpu->Info().multiprocessors, gpu->Info().block_shared_bytes};
  backend.shapes = {{"Llama-3-8B q, o", 4096, 4096},      {"Llama-3-8B k, v", 1024, 4096},
                    {"Llama-3-8B gate, up", 28672, 4096}, {"Llama-3-8B down", 4096, 14336},
                    {"Llama-3-8B head", 128256, 4096},    {"Qwen3-0.6B q", 2048, 1024},
                    {"Qwen3-0.6B k, v", 1024, 1024},      {"Qwen3-0.6B o", 1024, 2048},
                    {"Qwen3-0.6B gate, up", 6144, 1024},  {"Qwen3-0.6B down", 1024, 3072},
                    {"Qwen3-0.6B head", 151936, 1024}};
  backend.rows = {1, 8, 16, 32, 64, 128, 256};
  backend.weight_bytes = int64_t{512} << 20;
  const auto timer = std::make_shared<GpuTimer>(gpu->Stream());
  backend.seconds = [timer](const std::function<void()>& body) { return timer->Seconds(body); };
  const auto cublas = std::make_shared<Cublas>(gpu->Stream());
  backend.peer = [cublas](const auto& x, const auto& w, const auto& out) {
    cublas->Multiply(x, w, out);
  };
  const std::shared_ptr<GpuLimits> limits = Opened(MakeGpuLimits());
  backend.copy_bytes_per_second = [limits] { return limits->CopyBytesPerSecond(); };
  return backend;
}

}  // namespace skein::bench
