#include <utility>

#include "engine/cuda/ops/device_sampler.h"
#include "engine/cuda/skinny_gemm/skinny_gemm_plan.h"
#include "engine/cuda/testing/emulated_backend.h"
#include "engine/cuda/testing/twin_backend.h"

namespace skein::engine {

TestingBackend MakeTestingBackend() {
  auto ops = MakeEmulatedCudaOps();
  TestingBackend backend;
  backend.decode_graphs = [ops = ops.get()](const DecodeGraphsOptions& options, WrapRecorder wrap) {
    return MakeDecodeRunner([=](const DecodeShape& shape, auto warn) {
      auto recorder = MakeEmulatedGraphRecorder();
      if (wrap) recorder = wrap(std::move(recorder));
      return DecodeGraphs::Make(MakeEmulatedCudaDevice(), ops, std::move(recorder), shape, options,
                                std::move(warn));
    });
  };
  backend.ops = std::move(ops);
  backend.device = MakeEmulatedCudaDevice();
  backend.make_token_sampler = [](int vocab_size) {
    return DeviceSampler::Make(MakeEmulatedCudaDevice(), nullptr, vocab_size, kSkinnyGemmRowsMax);
  };
  return backend;
}

}  // namespace skein::engine
