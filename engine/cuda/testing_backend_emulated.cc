#include "engine/cuda/emulated_backend.h"
#include "engine/cuda/testing_backend.h"

namespace skein::engine {

TestingBackend MakeTestingBackend() { return {MakeEmulatedCudaOps(), MakeEmulatedCudaDevice()}; }

}  // namespace skein::engine
