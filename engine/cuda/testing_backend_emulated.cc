#include "engine/cuda/device_sampler.h"
#include "engine/cuda/emulated_backend.h"
#include "engine/cuda/testing_backend.h"

namespace skein::engine {

TestingBackend MakeTestingBackend() {
  return {MakeEmulatedCudaOps(), MakeEmulatedCudaDevice(), [](int vocab_size) {
            return DeviceSampler::Make(MakeEmulatedCudaDevice(), nullptr, vocab_size, kFewRowsMax);
          }};
}

}  // namespace skein::engine
