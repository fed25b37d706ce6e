// What CpuOps reaches, beside its limits:
//   --mode=stream     decode products: GB/s of weights, beside a read-only sweep of as many bytes
//   --mode=gemm       prefill products: GFLOP/s, beside oneDNN alone on the same shapes
//   --mode=crossover  skinny GEMM: the streamed kernel beside oneDNN (what kSkinnyRowsMax costs)
//   --mode=attention  decode GB/s of KV beside the sweep; prefill GFLOP/s
//   --mode=rows       the element-wise steps of a prefill: GB/s moved
// Run with: bazel run --config=opt //bench/engine:ops_bench -- --mode=stream --threads=1
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/bench_timer.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/onednn_gemm.h"

namespace skein::engine {
namespace {

using bench::MedianSecondsInTurn;

struct Flags {
  std::string mode = "stream";
  int threads = 1;
  int repeats = 15;
  // Of one thread, CPU time by default: see bench_timer.h.
  bench::Clock clock() const {
    return cpu_clock && threads == 1 ? bench::Clock::kThreadCpu : bench::Clock::kWall;
  }
  bool cpu_clock = true;
};

// Memory that is really there (every page written), in huge pages where the kernel gives them.
class Memory {
 public:
  Memory(size_t bytes, uint32_t seed) : bytes_(bytes) {
    data_ = device_->Alloc(bytes).value();
    std::minstd_rand random(seed);
    // bf16 values of size about 1, of either sign; as f32 they are such values too.
    auto* halves = static_cast<uint16_t*>(data_);
    for (size_t i = 0; i < bytes / 2; ++i) {
      halves[i] = static_cast<uint16_t>(0x3f00 | (random() & 0x80ff));
    }
  }
  ~Memory() { device_->Free(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }
  Matrix AsMatrix(DType dtype, int64_t rows, int64_t cols, size_t offset = 0) const {
    return {data() + offset, dtype, rows, cols, cols};
  }

 private:
  std::unique_ptr<Device> device_ = MakeCpuDevice();
  size_t bytes_;
  void* data_;
};

volatile uint64_t sink;

// Reads [data, data + bytes) once, as fast as it can.
void Sweep(ThreadPool* pool, const std::byte* data, size_t bytes) {
  pool->RunOnEach([&](int thread) {
    const size_t share = bytes / static_cast<size_t>(pool->threads()) / 64 * 64;
    const auto* words =
        reinterpret_cast<const uint64_t*>(data + share * static_cast<size_t>(thread));
    uint64_t sums[8] = {};
    for (size_t i = 0; i + 8 <= share / 8; i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
    }
    uint64_t total = 0;
    for (const uint64_t sum : sums) total += sum;
    sink = total;
  });
}

// The weights of decode steps: one after the other, larger than any cache together.
void RunStream(const Flags& flags) {
  const auto ops = MakeCpuOps({flags.threads, CpuIsa::kAuto}).value();
  ThreadPool pool(flags.threads);
  constexpr size_t kBytes = size_t{512} << 20;
  const Memory weights(kBytes, 1);
  struct Shape {
    int64_t n, k;
  };
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const Shape s : {Shape{2048, 2048}, Shape{256, 2048}, Shape{5632, 2048}, Shape{2048, 5632},
                          Shape{32000, 2048}, Shape{2304, 768}}) {
      for (const int64_t m : {1, 4}) {
        const Memory x(static_cast<size_t>(m * s.k) * 4, 2),
            out(static_cast<size_t>(m * s.n) * 4, 3);
        const size_t one = static_cast<size_t>(s.n * s.k) * BytesOf(dtype);
        const size_t count = std::min<size_t>(kBytes / one, 64);
        const auto seconds = MedianSecondsInTurn(
            {[&] { Sweep(&pool, weights.data(), count * one); },
             [&] {
               for (size_t i = 0; i < count; ++i) {
                 ops->MatMul(x.AsMatrix(dtype, m, s.k), weights.AsMatrix(dtype, s.n, s.k, i * one),
                             {}, out.AsMatrix(DType::kF32, m, s.n));
               }
             }},
            flags.repeats, flags.clock());
        const double gigabytes = static_cast<double>(count * one) * 1e-9;
        std::printf("stream %-4s m=%ld n=%5ld k=%4ld  %6.2f GB/s  sweep %6.2f GB/s  ratio %.3f\n",
                    NameOf(dtype).data(), m, s.n, s.k, gigabytes / seconds[1],
                    gigabytes / seconds[0], seconds[0] / seconds[1]);
      }
    }
  }
}

// oneDNN by itself, columns shared among threads as CpuOps shares them.
class PlainGemm {
 public:
  PlainGemm(DType dtype, int64_t m, int64_t n, int64_t k, ThreadPool* pool)
      : pool_(pool), n_(n / pool->threads()) {
    product_ = gemm_.Prepare({m, n_, k, k, k, n, dtype, DType::kF32, false});
    for (int i = 0; i < pool->threads(); ++i) {
      scratch_.push_back(std::make_unique<Memory>(OneDnnGemm::ScratchBytes(*product_) + 64, 1));
    }
  }
  void Run(const Matrix& x, const Matrix& w, const Matrix& out) {
    pool_->RunOnEach([&](int i) {
      const int64_t column = n_ * i;
      gemm_.Run(*product_, x.data,
                static_cast<std::byte*>(w.data) +
                    column * w.stride * static_cast<int64_t>(BytesOf(w.dtype)),
                nullptr, static_cast<float*>(out.data) + column,
                scratch_[static_cast<size_t>(i)]->data());
    });
  }

 private:
  ThreadPool* pool_;
  int64_t n_;
  OneDnnGemm gemm_;
  std::shared_ptr<const OneDnnGemm::Product> product_;
  std::vector<std::unique_ptr<Memory>> scratch_;
};

void CompareGemm(const Flags& flags, Ops* ops, DType dtype, int64_t m, int64_t n, int64_t k) {
  ThreadPool pool(flags.threads);
  const Memory x_memory(static_cast<size_t>(m * k) * 4, 1);
  const Memory w_memory(static_cast<size_t>(n * k) * 4, 2);
  const Memory out_memory(static_cast<size_t>(m * n) * 4, 3);
  const Matrix x = x_memory.AsMatrix(dtype, m, k), w = w_memory.AsMatrix(dtype, n, k);
  const Matrix out = out_memory.AsMatrix(DType::kF32, m, n);
  const DType plain_dtype = dtype == DType::kF16 ? DType::kF32 : dtype;
  PlainGemm plain(plain_dtype, m, n, k, &pool);
  const Matrix plain_x = x_memory.AsMatrix(plain_dtype, m, k);
  const Matrix plain_w = w_memory.AsMatrix(plain_dtype, n, k);
  const auto seconds = MedianSecondsInTurn(
      {[&] { ops->MatMul(x, w, {}, out); }, [&] { plain.Run(plain_x, plain_w, out); }},
      flags.repeats, flags.clock());
  const double gigaflop = 2e-9 * static_cast<double>(m) * static_cast<double>(n * k);
  std::printf("gemm %-4s m=%4ld n=%5ld k=%4ld  %7.1f GFLOP/s  oneDNN %s %7.1f  ratio %.3f\n",
              NameOf(dtype).data(), m, n, k, gigaflop / seconds[0], NameOf(plain_dtype).data(),
              gigaflop / seconds[1], seconds[1] / seconds[0]);
}

void RunGemm(const Flags& flags) {
  const auto ops = MakeCpuOps({flags.threads, CpuIsa::kAuto}).value();
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    for (const int64_t m : {128, 512, 500}) {
      CompareGemm(flags, ops.get(), dtype, m, 2048, 2048);
      CompareGemm(flags, ops.get(), dtype, m, 256, 2048);
      CompareGemm(flags, ops.get(), dtype, m, 5632, 2048);
      CompareGemm(flags, ops.get(), dtype, m, 2048, 5632);
    }
  }
}

void RunCrossover(const Flags& flags) {
  ThreadPool pool(flags.threads);
  const Kernels kernels = KernelsFor(BestIsa());
  constexpr size_t kBytes = size_t{256} << 20;
  const Memory weights(kBytes, 1);
  const int64_t n = 2048, k = 2048;
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    for (const int64_t m : {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      const Memory x(static_cast<size_t>(m * k) * 4, 2), out(static_cast<size_t>(m * n) * 4, 3);
      const bool pairs = dtype == DType::kBF16 && kernels.has_bf16_pairs;
      const DType plain_dtype = pairs ? DType::kBF16 : DType::kF32;
      PlainGemm plain(plain_dtype, m, n, k, &pool);
      const size_t one = static_cast<size_t>(n * k) * 4;
      const size_t count = kBytes / one;
      const auto seconds = MedianSecondsInTurn(
          {[&] {
             for (size_t i = 0; i < count; ++i) {
               const StreamProduct p{x.data(),
                                     k,
                                     pairs,
                                     static_cast<int>(m),
                                     weights.AsMatrix(dtype, n, k, i * one),
                                     nullptr,
                                     out.AsMatrix(DType::kF32, m, n)};
               pool.ParallelFor(n, 64, [&](int64_t a, int64_t b) { kernels.stream(p, a, b); });
             }
           },
           [&] {
             for (size_t i = 0; i < count; ++i) {
               plain.Run(x.AsMatrix(plain_dtype, m, k),
                         weights.AsMatrix(plain_dtype, n, k, i * one),
                         out.AsMatrix(DType::kF32, m, n));
             }
           }},
          flags.repeats, flags.clock());
      const double flop = 2e-9 * static_cast<double>(m * n * k) * static_cast<double>(count);
      std::printf("crossover %-4s m=%2ld  streamed %7.1f GFLOP/s  oneDNN %s %7.1f GFLOP/s\n",
                  NameOf(dtype).data(), m, flop / seconds[0], NameOf(plain_dtype).data(),
                  flop / seconds[1]);
    }
  }
}

// Sequences of `tokens` rows after `history` positions, in a pool of shuffled blocks.
struct AttentionLoad {
  AttentionLoad(int heads, int kv_heads, int head_dim, DType dtype, int sequences, int64_t history,
                int64_t tokens)
      : spec{1, kv_heads, head_dim, 16, dtype, sequences * ((history + tokens + 15) / 16)},
        pool(static_cast<size_t>(spec.num_blocks * spec.BlockBytes()), 5),
        q(static_cast<size_t>(sequences * tokens * heads * head_dim) * 4, 6),
        out(q.bytes(), 7) {
    ids.resize(static_cast<size_t>(spec.num_blocks));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), std::minstd_rand(8));
    const size_t per_sequence = ids.size() / static_cast<size_t>(sequences);
    for (int i = 0; i < sequences; ++i) {
      const std::span<const int32_t> table(ids.data() + static_cast<size_t>(i) * per_sequence,
                                           per_sequence);
      spans.push_back({i * tokens, tokens, history, table, {}});
    }
    rows = sequences * tokens;
    cols = int64_t{heads} * head_dim;
  }
  void Run(Ops* ops) {
    ops->PagedAttention(q.AsMatrix(DType::kF32, rows, cols), spans, {pool.data(), &spec},
                        0.01f / static_cast<float>(spec.head_dim),
                        out.AsMatrix(DType::kBF16, rows, cols), {});
  }

  KvSpec spec;
  Memory pool, q, out;
  std::vector<int32_t> ids;
  std::vector<SequenceSpan> spans;
  int64_t rows = 0, cols = 0;
};

struct HeadShape {
  int heads, kv_heads, head_dim;
};

void BenchDecode(const Flags& flags, Ops* ops, HeadShape s, DType dtype, int sequences,
                 int64_t history) {
  ThreadPool pool(flags.threads);
  // Larger than the caches, as the KV of a whole model is.
  const Memory swept(size_t{256} << 20, 9);
  AttentionLoad load(s.heads, s.kv_heads, s.head_dim, dtype, sequences, history, 1);
  const auto seconds = MedianSecondsInTurn(
      {[&] { load.Run(ops); }, [&] { Sweep(&pool, swept.data(), swept.bytes()); }}, flags.repeats,
      flags.clock());
  const double gigabytes = 1e-9 * static_cast<double>(load.pool.bytes());
  const double swept_gigabytes = 1e-9 * static_cast<double>(swept.bytes());
  std::printf(
      "decode  %-4s %2d/%d heads of %3d, %d x %ld keys  %6.2f GB/s  sweep %6.2f GB/s  ratio %.3f\n",
      NameOf(dtype).data(), s.heads, s.kv_heads, s.head_dim, sequences, history,
      gigabytes / seconds[0], swept_gigabytes / seconds[1],
      gigabytes / seconds[0] * seconds[1] / swept_gigabytes);
}

void BenchPrefill(const Flags& flags, Ops* ops, HeadShape s, DType dtype, int64_t history,
                  int64_t tokens) {
  AttentionLoad load(s.heads, s.kv_heads, s.head_dim, dtype, 1, history, tokens);
  const auto seconds = MedianSecondsInTurn({[&] { load.Run(ops); }}, flags.repeats, flags.clock());
  const double keys = static_cast<double>(history) + static_cast<double>(tokens + 1) / 2;
  const double flop = 4.0 * static_cast<double>(tokens) * keys * s.heads * s.head_dim;
  std::printf("prefill %-4s %2d/%d heads of %3d, %ld after %ld  %7.1f GFLOP/s  %.3f ms\n",
              NameOf(dtype).data(), s.heads, s.kv_heads, s.head_dim, tokens, history,
              1e-9 * flop / seconds[0], 1e3 * seconds[0]);
}

void RunAttention(const Flags& flags) {
  const auto ops = MakeCpuOps({flags.threads, CpuIsa::kAuto}).value();
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const HeadShape s : {HeadShape{32, 4, 64}, HeadShape{16, 8, 128}, HeadShape{32, 32, 64},
                              HeadShape{12, 12, 64}}) {
      BenchDecode(flags, ops.get(), s, dtype, 1, 256);
      BenchDecode(flags, ops.get(), s, dtype, 1, 32768);
      BenchDecode(flags, ops.get(), s, dtype, 16, 2048);
      BenchPrefill(flags, ops.get(), s, dtype, 0, 512);
      BenchPrefill(flags, ops.get(), s, dtype, 3584, 512);
    }
  }
}

// The element-wise steps of 512 rows of a 1.1 B model.
void RunRows(const Flags& flags) {
  const auto ops = MakeCpuOps({flags.threads, CpuIsa::kAuto}).value();
  const int64_t rows = 512, hidden = 2048, inner = 5632;
  const Memory a(static_cast<size_t>(rows * inner) * 8, 1),
      b(static_cast<size_t>(rows * inner) * 8, 2);
  const Matrix x = a.AsMatrix(DType::kF32, rows, hidden);
  const std::vector<float> angles(static_cast<size_t>(rows * 32), 0.5f);
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  const auto seconds =
      MedianSecondsInTurn({[&] {
                             ops->RmsNorm(x, b.AsMatrix(DType::kBF16, 1, hidden), 1e-5f,
                                          b.AsMatrix(DType::kBF16, rows, hidden));
                           },
                           [&] {
                             ops->Rope(x, positions, {angles.data(), angles.data(), rows, 64});
                           },
                           [&] { ops->Add(x, b.AsMatrix(DType::kF32, rows, hidden)); },
                           [&] {
                             ConstMatrix gate = a.AsMatrix(DType::kF32, rows, 2 * inner), up = gate;
                             gate.cols = up.cols = inner;
                             up.data = static_cast<const float*>(up.data) + inner;
                             ops->SwiGlu(gate, up, b.AsMatrix(DType::kBF16, rows, inner));
                           }},
                          flags.repeats, flags.clock());
  const char* const names[] = {"rms_norm", "rope", "add", "swiglu"};
  const double bytes[] = {6.0 * rows * hidden, 8.0 * rows * hidden, 12.0 * rows * hidden,
                          10.0 * rows * inner};
  for (size_t i = 0; i < 4; ++i) {
    std::printf("rows %-8s %7.3f ms  %6.2f GB/s\n", names[i], 1e3 * seconds[i],
                1e-9 * bytes[i] / seconds[i]);
  }
}

bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (name == "--mode") {
      flags->mode = value;
    } else if (name == "--threads") {
      flags->threads = std::atoi(value.c_str());
    } else if (name == "--repeats") {
      flags->repeats = std::atoi(value.c_str());
    } else if (name == "--clock" && (value == "wall" || value == "cpu")) {
      flags->cpu_clock = value == "cpu";
    } else {
      return false;
    }
  }
  return flags->threads >= 1 && flags->repeats >= 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!Parse(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "usage: ops_bench [--mode=stream|gemm|crossover|attention|rows] "
                 "[--threads=N] [--repeats=N] [--clock=wall|cpu]\n");
    return 2;
  }
  if (flags.mode == "stream") RunStream(flags);
  if (flags.mode == "gemm") RunGemm(flags);
  if (flags.mode == "crossover") RunCrossover(flags);
  if (flags.mode == "attention") RunAttention(flags);
  if (flags.mode == "rows") RunRows(flags);
  return 0;
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) { return skein::engine::Main(argc, argv); }
