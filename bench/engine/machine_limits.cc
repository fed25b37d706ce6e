#include "bench/engine/machine_limits.h"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "dnnl.hpp"

namespace skein::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSweepBytes = size_t{1} << 30;  // 32 times this machine's last cache
constexpr int kGemmPasses = 4;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Xor of all 64-byte words, eight streams of them in registers.
__attribute__((target("avx512f"))) uint64_t ReadAvx512(const uint8_t* data, size_t bytes) {
  using Word = uint64_t __attribute__((vector_size(64)));
  Word sum[8] = {};
  for (size_t i = 0; i + 512 <= bytes; i += 512) {
    for (int k = 0; k < 8; ++k) sum[k] ^= *reinterpret_cast<const Word*>(data + i + k * 64);
  }
  uint64_t total = 0;
  for (const Word& word : sum) {
    for (int k = 0; k < 8; ++k) total ^= word[k];
  }
  return total;
}

uint64_t ReadPortable(const uint8_t* data, size_t bytes) {
  uint64_t sum[16] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    for (int k = 0; k < 16; ++k) sum[k] ^= reinterpret_cast<const uint64_t*>(data + i)[k];
  }
  return *std::max_element(sum, sum + 16);
}

volatile uint64_t g_sink = 0;  // keeps the sweep from being optimised away

void ReadAll(const uint8_t* data, size_t bytes) {
  g_sink = __builtin_cpu_supports("avx512f") ? ReadAvx512(data, bytes) : ReadPortable(data, bytes);
}

void ReadPart(const uint8_t* data, size_t bytes, int threads) {
  const size_t share = bytes / static_cast<size_t>(threads) / 64 * 64;
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back(ReadAll, data + static_cast<size_t>(t) * share, share);
  }
  ReadAll(data, share);
  for (std::thread& other : others) other.join();
}

// One weight matrix with its product compiled.
class Product {
 public:
  Product(const GemmShape& shape, int64_t rows, const dnnl::engine& engine)
      : x_({{rows, shape.depth}, dnnl::memory::data_type::bf16, dnnl::memory::dims{shape.depth, 1}},
           engine),
        w_({{shape.depth, shape.columns},
            dnnl::memory::data_type::bf16,
            dnnl::memory::dims{1, shape.depth}},
           engine),
        out_({{rows, shape.columns},
              dnnl::memory::data_type::f32,
              dnnl::memory::dims{shape.columns, 1}},
             engine),
        product_(dnnl::matmul::primitive_desc(
            dnnl::matmul::desc(x_.get_desc(), w_.get_desc(), out_.get_desc()), engine)) {
    for (dnnl::memory* memory : {&x_, &w_}) {  // 1.0 everywhere: no denormals
      auto* values = static_cast<uint16_t*>(memory->get_data_handle());
      std::fill_n(values, memory->get_desc().get_size() / 2, uint16_t{0x3f80});
    }
  }

  void Run(dnnl::stream& stream) {
    product_.execute(stream, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DST, out_}});
  }

 private:
  dnnl::memory x_, w_, out_;
  dnnl::matmul product_;
};

}  // namespace

void Sweep::Unmap::operator()(uint8_t* data) const { munmap(data, kSweepBytes); }

Sweep::Sweep() {
  void* data =
      mmap(nullptr, kSweepBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) std::abort();
  madvise(data, kSweepBytes, MADV_HUGEPAGE);
  std::memset(data, 1, kSweepBytes);
  memory_.reset(static_cast<uint8_t*>(data));
}

void Sweep::Read(size_t bytes, int threads) {
  for (bytes = bytes / 64 * 64; bytes > 0;) {
    if (next_ == kSweepBytes) next_ = 0;
    const size_t part = std::min(bytes, kSweepBytes - next_);
    ReadPart(memory_.get() + next_, part, threads);
    next_ += part;
    bytes -= part;
  }
}

double GemmSeconds(const std::vector<GemmShape>& shapes, int64_t rows, int threads) {
  omp_set_num_threads(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  double total = 0.0;
  for (const GemmShape& shape : shapes) {
    Product product(shape, rows, engine);
    product.Run(stream);
    stream.wait();
    double best = 1e9;
    for (int pass = 0; pass < kGemmPasses; ++pass) {
      const Clock::time_point start = Clock::now();
      product.Run(stream);
      stream.wait();
      best = std::min(best, SecondsSince(start));
    }
    total += best;
  }
  return total;
}

}  // namespace skein::bench
