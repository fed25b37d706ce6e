#include <utility>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/device_sampler.h"
#include "engine/cuda/testing_backend.h"

namespace skein::engine {

TestingBackend MakeTestingBackend() {
  CudaBackend backend = MakeCudaBackend("cuda:0").value();
  return {std::move(backend.ops), std::move(backend.device), [gpu = backend.gpu](int vocab_size) {
            return DeviceSampler::Make(gpu, gpu->Stream(), vocab_size, kFewRowsMax);
          }};
}

}  // namespace skein::engine
