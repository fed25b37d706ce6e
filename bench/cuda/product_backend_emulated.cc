#include "bench/cuda/product_backend.h"
#include "bench/engine/bench_timer.h"
#include "engine/cuda/testing/emulated_backend.h"

namespace skein::bench {

ProductBackend OpenProductBackend() {
  ProductBackend backend;
  backend.device = engine::MakeEmulatedCudaDevice();
  backend.policy = {4, 227 << 10};
  backend.shapes = {{"a small model", 48, 80}, {"a small model", 40, 1040}};
  backend.rows = {1, 40};
  backend.weight_bytes = 100 << 10;
  backend.seconds = [](const std::function<void()>& body) {
    const double begin = SecondsNow(Clock::kWall);
    body();
    return SecondsNow(Clock::kWall) - begin;
  };
  const std::shared_ptr<engine::Gemm> plain = engine::MakePlainGemm();
  backend.peer = [plain](const auto& x, const auto& w, const auto& out) {
    plain->Multiply(x, w, {}, out, nullptr);
  };
  backend.copy_bytes_per_second = [] { return 1e9; };
  return backend;
}

}  // namespace skein::bench
