// The attention kernels alone on a GPU, at Llama-3-8B's shape (32 query heads, 8 KV heads, head_dim
// 128, bf16 KV in blocks of 16, shuffled): prefill of 8k tokens beside cuBLAS's rate, and decode of
// 64 sequences of 4k beside the rate of a device copy. All take turns in each round; figures are
// medians, and shares are of the same run's.
//
//   bazel run --config=opt --config=cuda //bench/cuda:attention_bench [-- ROUNDS]
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "bench/engine/bench_timer.h"
#include "engine/cuda/attention/attention.h"

namespace skein::bench {
namespace {

using engine::DType;

constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128, kBlockTokens = 16;
constexpr int kRoundsDefault = 30;
constexpr int64_t kGemmSide = 8192;
constexpr size_t kCopyBytes = size_t{1} << 30;

void Require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "attention_bench: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void Require(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "attention_bench: %s: %s\n", what, cublasGetStatusString(status));
  std::exit(1);
}

// Device memory until the process ends.
void* Allocate(size_t bytes) {
  void* memory = nullptr;
  Require(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}

template <typename T>
T* Upload(const std::vector<T>& values) {
  void* memory = Allocate(values.size() * sizeof(T));
  Require(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  return static_cast<T*>(memory);
}

// `count` normally distributed numbers, repeated from a smaller set.
template <typename T, typename Convert>
T* UploadRandom(int64_t count, Convert convert) {
  std::mt19937 random(5);
  std::normal_distribution<float> draw;
  std::vector<T> some(static_cast<size_t>(std::min<int64_t>(count, 1 << 20)));
  for (T& value : some) value = convert(draw(random));
  auto* memory = static_cast<T*>(Allocate(static_cast<size_t>(count) * sizeof(T)));
  const auto step = static_cast<int64_t>(some.size());
  for (int64_t i = 0; i < count; i += step) {
    const auto bytes = static_cast<size_t>(std::min(step, count - i)) * sizeof(T);
    Require(cudaMemcpy(memory + i, some.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  return memory;
}

engine::BF16* RandomBF16(int64_t count) {
  return UploadRandom<engine::BF16>(count, [](float x) { return engine::ToBF16(x); });
}

// `spans` sequences of `tokens` rows each behind `position` keys.
class AttentionRun {
 public:
  AttentionRun(int spans, int64_t tokens, int64_t position, int multiprocessors) {
    const int64_t keys = position + tokens, blocks = (keys + kBlockTokens - 1) / kBlockTokens;
    std::vector<engine::DeviceSpan> device_spans;
    for (int i = 0; i < spans; ++i) {
      const auto rows = static_cast<int32_t>(tokens);
      device_spans.push_back({i * tokens, position, -1, rows, i * rows,
                              static_cast<int32_t>(i * blocks), kBlockTokens, kKvHeads, 0});
    }
    std::vector<int32_t> table(static_cast<size_t>(spans * blocks));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(3));
    const int64_t block_elements = int64_t{2} * kKvHeads * kBlockTokens * kHeadDim;
    const int64_t cols = int64_t{kHeads} * kHeadDim, rows = spans * tokens;
    call_ = {{UploadRandom<float>(rows * cols, [](float x) { return x; }), DType::kF32, rows, cols,
              cols},
             {Upload(device_spans), Upload(table), spans, static_cast<int32_t>(rows)},
             {RandomBF16(spans * blocks * block_elements), DType::kBF16, kHeadDim, block_elements},
             1.0f / std::sqrt(static_cast<float>(kHeadDim)),
             {Allocate(static_cast<size_t>(rows * cols) * 2), DType::kBF16, rows, cols, cols},
             {}};
    engine::AttentionPolicy policy;
    policy.blocks = 2 * multiprocessors;
    engine::AttentionPlan plan(policy);
    plan.Build(device_spans, kHeads, kHeadDim);
    const auto bytes = plan.bytes();
    work_ = {plan.grid(), Upload(std::vector<std::byte>(bytes.begin(), bytes.end())),
             Allocate(engine::AttentionScratchBytes(plan.partial_rows(), kHeadDim) + 16),
             plan.partial_rows()};
  }
  void Launch(cudaStream_t stream) const { engine::FlashAttention(call_, work_, stream); }

 private:
  engine::AttentionCall call_;
  engine::AttentionWork work_;
};

// The GPU's seconds for what `body` puts on the stream.
class GpuTimer {
 public:
  explicit GpuTimer(cudaStream_t stream) : stream_(stream) {
    Require(cudaEventCreate(&begin_), "cudaEventCreate");
    Require(cudaEventCreate(&end_), "cudaEventCreate");
  }
  double Seconds(const std::function<void()>& body) {
    Require(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    body();
    Require(cudaEventRecord(end_, stream_), "cudaEventRecord");
    Require(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float ms = 0;
    Require(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms * 1e-3;
  }

 private:
  const cudaStream_t stream_;
  cudaEvent_t begin_, end_;
};

struct Case {
  const char* name;
  double amount;  // FLOPs, or bytes
  const char* unit;
  int limit;  // index of the case that it is a share of, or -1
  std::function<void()> body;
};

void Report(const std::vector<Case>& cases, const std::vector<double>& seconds) {
  const auto rate = [&](size_t i) { return cases[i].amount / seconds[i]; };
  for (size_t i = 0; i < cases.size(); ++i) {
    std::printf("%-28s %10.1f us %8.1f %s", cases[i].name, seconds[i] * 1e6, rate(i) * 1e-9,
                cases[i].unit);
    if (cases[i].limit >= 0) {
      const auto limit = static_cast<size_t>(cases[i].limit);
      std::printf("   %5.1f %% of %s", 100 * rate(i) / rate(limit), cases[limit].name);
    }
    std::printf("\n");
  }
}

int Main(int rounds) {
  cudaDeviceProp device{};
  Require(cudaGetDeviceProperties(&device, 0), "no GPU");
  std::printf("%s, %d multiprocessors; medians of %d rounds\n", device.name,
              device.multiProcessorCount, rounds);
  cudaStream_t stream = nullptr;
  Require(cudaStreamCreate(&stream), "cudaStreamCreate");
  cublasHandle_t cublas = nullptr;
  Require(cublasCreate(&cublas), "cublasCreate");
  Require(cublasSetStream(cublas, stream), "cublasSetStream");

  const engine::BF16* a = RandomBF16(kGemmSide * kGemmSide);
  const engine::BF16* b = RandomBF16(kGemmSide * kGemmSide);
  void* c = Allocate(static_cast<size_t>(kGemmSide * kGemmSide) * 2);
  const auto gemm = [&] {
    const float one = 1, zero = 0;
    const int side = kGemmSide;
    Require(cublasGemmEx(cublas, CUBLAS_OP_T, CUBLAS_OP_N, side, side, side, &one, a, CUDA_R_16BF,
                         side, b, CUDA_R_16BF, side, &zero, c, CUDA_R_16BF, side,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
  };
  void* from = Allocate(kCopyBytes);
  void* to = Allocate(kCopyBytes);
  Require(cudaMemset(from, 1, kCopyBytes), "cudaMemset");
  const auto copy = [&] {
    Require(cudaMemcpyAsync(to, from, kCopyBytes, cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpyAsync");
  };

  constexpr int64_t kPrompt = 8192, kContext = 4096;
  constexpr int kBatch = 64;
  const AttentionRun prefill(1, kPrompt, 0, device.multiProcessorCount);
  const AttentionRun decode(kBatch, 1, kContext - 1, device.multiProcessorCount);
  const AttentionRun single(1, 1, kContext - 1, device.multiProcessorCount);
  // Of a causal prompt half of the products count; of decode, the keys and values that are read.
  const double prefill_flops = 4.0 * kHeadDim * kHeads * kPrompt * (kPrompt + 1) / 2;
  const double context_bytes = 2.0 * 2 * kHeadDim * kKvHeads * kContext;
  const std::vector<Case> cases = {
      {"cuBLAS bf16 8192^3", 2.0 * kGemmSide * kGemmSide * kGemmSide, "GFLOP/s", -1, gemm},
      {"device copy, read + write", 2.0 * kCopyBytes, "GB/s", -1, copy},
      {"prefill 8k", prefill_flops, "GFLOP/s", 0, [&] { prefill.Launch(stream); }},
      {"decode 64 x 4k", kBatch * context_bytes, "GB/s", 1, [&] { decode.Launch(stream); }},
      {"decode 1 x 4k (in L2)", context_bytes, "GB/s", 1, [&] { single.Launch(stream); }},
  };
  GpuTimer timer(stream);
  std::vector<std::vector<double>> seconds(cases.size());
  for (int round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const double taken = timer.Seconds(cases[i].body);
      if (round > 0) seconds[i].push_back(taken);  // the first warms up
    }
  }
  std::vector<double> medians;
  for (const auto& all : seconds) medians.push_back(Median(all));
  Report(cases, medians);
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : skein::bench::kRoundsDefault;
  return skein::bench::Main(std::max(rounds, 1));
}
