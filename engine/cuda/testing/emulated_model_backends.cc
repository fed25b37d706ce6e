// The same parts as a worker's on a GPU, over the emulator.
#include <utility>

#include "engine/cuda/testing/twin_backend.h"
#include "engine/model/testing/model_backends.h"

namespace skein::engine {

std::vector<ModelBackend> ModelBackends() {
  const auto make = [](const std::string& dir, ModelEngineOptions options) {
    TestingBackend backend = MakeTestingBackend();
    options.make_token_sampler = backend.make_token_sampler;
    options.make_decode_runner = backend.decode_graphs({}, nullptr);
    return MakeModelEngine(dir, std::move(backend.ops), std::move(backend.device), options);
  };
  return {{"CudaEmulated", make, ModelBackend::Pace::kVerySlow}};
}

}  // namespace skein::engine
