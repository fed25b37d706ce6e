// A CUDA backend for tests of whole models: on the emulator or on the first GPU, whichever the test
// is linked with.
#pragma once

#include <memory>

#include "engine/device/device.h"
#include "engine/ops/ops.h"
#include "engine/sampling/token_sampler.h"

namespace skein::engine {

struct TestingBackend {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Device> device;
  MakeTokenSampler make_token_sampler;
};

TestingBackend MakeTestingBackend();

}  // namespace skein::engine
