// The attention kernels alone on a GPU, at Llama-3-8B's shape (32 query heads, 8 KV heads, head_dim
// 128, bf16 KV in blocks of 16, shuffled): prefill of 1k, 8k and 32k tokens beside cuBLAS's rate,
// by mma.sync and, on Hopper, by wgmma; and decode of 64 sequences of 4k beside the rate of a
// device copy. All take turns in each round; figures are medians, and shares are of the same run's.
//
//   bazel run --config=opt --config=cuda //bench/cuda:attention_bench [-- ROUNDS]
//   bench/cuda/attention_peer.py [ROUNDS]      PyTorch's attention on the same shapes
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/cuda/gpu_limits.h"
#include "bench/cuda/gpu_timer.h"
#include "bench/engine/bench_timer.h"
#include "engine/cuda/attention/attention.h"

namespace skein::bench {
namespace {

using engine::DType;
using engine::WideKernel;

constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128, kBlockTokens = 16;
constexpr int kRoundsDefault = 30;

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
  void Launch(cudaStream_t stream, WideKernel wide = WideKernel::kMmaSync) const {
    engine::AttentionWork work = work_;
    work.wide = wide;
    engine::FlashAttention(call_, work, stream);
  }

 private:
  engine::AttentionCall call_;
  engine::AttentionWork work_;
};

struct Case {
  std::string name;
  double amount;  // FLOPs, or bytes
  const char* unit;
  bool bytes;  // a share of the copy's rate, else of the product's
  std::function<void()> body;
};

void Report(const Case& c, double seconds, double limit) {
  const double rate = c.amount / seconds;
  std::printf("%-28s %10.1f us %8.1f %s   %5.1f %% of %s\n", c.name.c_str(), seconds * 1e6,
              rate * 1e-9, c.unit, 100 * rate / limit, c.bytes ? "the copy" : "cuBLAS");
}

int Main(int rounds) {
  cudaDeviceProp device{};
  Require(cudaGetDeviceProperties(&device, 0), "no GPU");
  std::printf("%s, %d multiprocessors; medians of %d rounds\n", device.name,
              device.multiProcessorCount, rounds);
  cudaStream_t stream = nullptr;
  Require(cudaStreamCreate(&stream), "cudaStreamCreate");
  const auto limits = MakeGpuLimits();
  if (!limits.ok()) {
    std::fprintf(stderr, "attention_bench: %s\n", limits.status().ToString().c_str());
    return 1;
  }

  constexpr int64_t kPrompts[] = {1024, 8192, 32768}, kContext = 4096;
  constexpr int kBatch = 64;
  constexpr int kHopper = 9;
  const AttentionRun decode(kBatch, 1, kContext - 1, device.multiProcessorCount);
  const AttentionRun single(1, 1, kContext - 1, device.multiProcessorCount);
  std::vector<Case> cases;
  std::deque<AttentionRun> prefills;
  for (const int64_t prompt : kPrompts) {
    const AttentionRun& run = prefills.emplace_back(1, prompt, 0, device.multiProcessorCount);
    // A causal prompt computes half of the products.
    const double flops =
        4.0 * kHeadDim * kHeads * static_cast<double>(prompt) * static_cast<double>(prompt + 1) / 2;
    const std::string name = "prefill " + std::to_string(prompt);
    cases.push_back({name, flops, "GFLOP/s", false, [&run, stream] { run.Launch(stream); }});
    if (device.major != kHopper) continue;
    cases.push_back({name + ", wgmma", flops, "GFLOP/s", false,
                     [&run, stream] { run.Launch(stream, WideKernel::kWgmma); }});
  }
  // For decode: the bytes of keys and values that are read.
  const double context_bytes = 2.0 * 2 * kHeadDim * kKvHeads * kContext;
  cases.push_back(
      {"decode 64 x 4k", kBatch * context_bytes, "GB/s", true, [&] { decode.Launch(stream); }});
  cases.push_back(
      {"decode 1 x 4k (in L2)", context_bytes, "GB/s", true, [&] { single.Launch(stream); }});
  GpuTimer timer(stream);
  std::vector<double> copies, products;
  std::vector<std::vector<double>> seconds(cases.size());
  for (int round = 0; round <= rounds; ++round) {
    const double copy = (*limits)->CopyBytesPerSecond(), product = (*limits)->GemmFlopsPerSecond();
    if (round > 0) copies.push_back(copy), products.push_back(product);
    for (size_t i = 0; i < cases.size(); ++i) {
      const double taken = timer.Seconds(cases[i].body);
      if (round > 0) seconds[i].push_back(taken);  // the first warms up
    }
  }
  std::printf("%-42s %8.1f GFLOP/s\n%-42s %8.1f GB/s\n", "cuBLAS bf16 8192^3",
              Median(products) * 1e-9, "device copy, read + write", Median(copies) * 1e-9);
  for (size_t i = 0; i < cases.size(); ++i) {
    Report(cases[i], Median(seconds[i]), Median(cases[i].bytes ? copies : products));
  }
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : skein::bench::kRoundsDefault;
  return skein::bench::Main(std::max(rounds, 1));
}
