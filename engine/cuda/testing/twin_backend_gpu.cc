#include <cstdio>
#include <string>
#include <utility>

#include "engine/cuda/engine/cuda_backend.h"
#include "engine/cuda/graphs/cuda_graph.h"
#include "engine/cuda/ops/device_sampler.h"
#include "engine/cuda/skinny_gemm/skinny_gemm_plan.h"
#include "engine/cuda/testing/twin_backend.h"

namespace skein::engine {

TestingBackend MakeTestingBackend() {
  CudaBackend gpu = MakeCudaBackend("cuda:0", [](const std::string& what) {
                      std::fprintf(stderr, "%s\n", what.c_str());
                    }).value();
  TestingBackend backend;
  auto* ops = static_cast<CudaOps*>(gpu.ops.get());
  backend.decode_graphs = [gpu = gpu.gpu, ops](const DecodeGraphsOptions& options,
                                               WrapRecorder wrap) {
    return MakeDecodeRunner([=](const DecodeShape& shape, auto warn) {
      auto recorder = MakeCudaGraphRecorder(gpu).value();
      if (wrap) recorder = wrap(std::move(recorder));
      return DecodeGraphs::Make(gpu, ops, std::move(recorder), shape, options, std::move(warn));
    });
  };
  backend.ops = std::move(gpu.ops);
  backend.device = std::move(gpu.device);
  backend.make_token_sampler = [gpu = gpu.gpu](int vocab_size) {
    return DeviceSampler::Make(gpu, gpu->Stream(), vocab_size, kSkinnyGemmRowsMax);
  };
  return backend;
}

}  // namespace skein::engine
