// The skinny GEMM kernel alone on a GPU (engine/cuda/skinny_gemm), at the shapes of a decode step
// of Llama-3-8B and Qwen3-0.6B in bf16, beside cuBLAS (as PyTorch calls it) and the rate of a
// device copy. Weights are read from memory, not from L2: products go round in several matrices.
// All take turns in each round; figures are medians, shares are of the same run's copy.
//
//   bazel run --config=opt --config=cuda //bench/cuda:product_bench [-- ROUNDS]
//
// //bench/cuda:emulated_product_bench_test runs the bench itself on the emulator, and checks that
// the two agree.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "bench/cuda/product_backend.h"
#include "bench/engine/bench_timer.h"

namespace skein::bench {
namespace {

using engine::BF16;
using engine::ConstMatrix;
using engine::CopyKind;
using engine::DType;
using engine::Matrix;

constexpr int kRoundsDefault = 20;

// Device memory until the process ends.
void* Allocate(const ProductBackend& backend, int64_t bytes) {
  const auto memory = backend.device->Alloc(static_cast<size_t>(bytes));
  if (memory.ok()) return *memory;
  std::fprintf(stderr, "product_bench: %s\n", memory.status().ToString().c_str());
  std::exit(1);
}

void Copy(const ProductBackend& backend, void* to, const void* from, int64_t bytes, CopyKind kind) {
  auto status = backend.device->Copy(to, from, static_cast<size_t>(bytes), kind);
  if (status.ok()) status = backend.device->Synchronize();
  if (status.ok()) return;
  std::fprintf(stderr, "product_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// `count` normally distributed numbers, repeated from a smaller set.
BF16* Random(const ProductBackend& backend, int64_t count) {
  static const std::vector<BF16> some = [] {
    std::mt19937 random(5);
    std::normal_distribution<float> draw;
    std::vector<BF16> values(1 << 20);
    for (BF16& value : values) value = engine::ToBF16(draw(random));
    return values;
  }();
  auto* memory = static_cast<BF16*>(Allocate(backend, count * 2));
  const auto step = static_cast<int64_t>(some.size());
  for (int64_t i = 0; i < count; i += step) {
    Copy(backend, memory + i, some.data(), std::min(step, count - i) * 2, CopyKind::kHostToDevice);
  }
  return memory;
}

struct Buffers {
  BF16* weights;
  BF16* x;
  void* ours;
  void* theirs;
  void* scratch;
};

Buffers MakeBuffers(const ProductBackend& backend) {
  int64_t rows = 1, n = 1, k = 1, weights = backend.weight_bytes / 2;
  for (const int64_t count : backend.rows) rows = std::max(rows, count);
  for (const ProductShape& shape : backend.shapes) {
    n = std::max(n, shape.n);
    k = std::max(k, shape.k);
    weights = std::max(weights, shape.n * shape.k);
  }
  Buffers buffers{Random(backend, weights), Random(backend, rows * k),
                  Allocate(backend, rows * n * 4), Allocate(backend, rows * n * 2),
                  Allocate(backend, engine::kSkinnyGemmScratchBytes)};
  const std::vector<std::byte> zeros(engine::kSkinnyGemmScratchBytes);
  Copy(backend, buffers.scratch, zeros.data(), static_cast<int64_t>(zeros.size()),
       CopyKind::kHostToDevice);
  return buffers;
}

// Whether both computed the same, as bf16 has it.
bool Agree(const ProductBackend& backend, const Buffers& buffers, int64_t count, int64_t k) {
  std::vector<float> ours(static_cast<size_t>(count));
  std::vector<BF16> theirs(static_cast<size_t>(count));
  Copy(backend, ours.data(), buffers.ours, count * 4, CopyKind::kDeviceToHost);
  Copy(backend, theirs.data(), buffers.theirs, count * 2, CopyKind::kDeviceToHost);
  const float absolute = 1e-6f * static_cast<float>(k);
  for (size_t i = 0; i < ours.size(); ++i) {
    const float other = engine::ToFloat(theirs[i]);
    if (!(std::abs(ours[i] - other) <= absolute + 4e-3f * std::abs(other))) return false;
  }
  return true;
}

bool Measure(const ProductBackend& backend, const Buffers& buffers, const ProductShape& shape,
             int64_t rows, int rounds) {
  const int64_t elements = shape.n * shape.k;
  const int64_t repeats = std::max<int64_t>(1, backend.weight_bytes / (2 * elements));
  const ConstMatrix x = {buffers.x, DType::kBF16, rows, shape.k, shape.k};
  const Matrix ours = {buffers.ours, DType::kF32, rows, shape.n, shape.n};
  const Matrix theirs = {buffers.theirs, DType::kBF16, rows, shape.n, shape.n};
  const auto all = [&](auto product) {
    return backend.seconds([&] {
      for (int64_t i = 0; i < repeats; ++i) {
        product(
            ConstMatrix{buffers.weights + i * elements, DType::kBF16, shape.n, shape.k, shape.k});
      }
    }) / static_cast<double>(repeats);
  };
  std::vector<double> our_seconds, their_seconds, shares;
  const double bytes = 2.0 * static_cast<double>(elements);
  for (int round = 0; round <= rounds; ++round) {
    const double mine = all([&](const ConstMatrix& w) {
      engine::SkinnyGemmOn(x, w, {}, {}, ours, backend.policy, buffers.scratch, backend.stream);
    });
    const double other = all([&](const ConstMatrix& w) { backend.peer(x, w, theirs); });
    const double copy = backend.copy_bytes_per_second();
    if (round == 0) continue;  // it warms up
    our_seconds.push_back(mine);
    their_seconds.push_back(other);
    shares.push_back(bytes / mine / copy);
  }
  const bool agree = Agree(backend, buffers, rows * shape.n, shape.k);
  const double mine = Median(our_seconds), other = Median(their_seconds);
  std::printf(
      "%-20s %6lld x %5lld %4lld rows %9.2f us %8.1f GB/s %5.1f %% of the copy | cuBLAS "
      "%9.2f us, %.2f of ours%s\n",
      shape.of, static_cast<long long>(shape.n), static_cast<long long>(shape.k),
      static_cast<long long>(rows), mine * 1e6, bytes / mine * 1e-9, 100 * Median(shares),
      other * 1e6, other / mine, agree ? "" : "  DIFFERENT RESULTS");
  return agree;
}

int Main(int rounds) {
  const ProductBackend backend = OpenProductBackend();
  const Buffers buffers = MakeBuffers(backend);
  bool agree = true;
  for (const ProductShape& shape : backend.shapes) {
    for (const int64_t rows : backend.rows) {
      agree = Measure(backend, buffers, shape, rows, rounds) && agree;
    }
  }
  return agree ? 0 : 1;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : skein::bench::kRoundsDefault;
  return skein::bench::Main(std::max(rounds, 1));
}
