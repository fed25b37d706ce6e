// A CUDA backend for tests of whole models: on the emulator or on the first GPU, whichever the test
// is linked with.
#pragma once

#include <functional>
#include <memory>

#include "engine/cuda/graphs/decode_graphs.h"
#include "engine/cuda/graphs/graph_recorder.h"
#include "engine/device/device.h"
#include "engine/ops/decode_runner.h"
#include "engine/ops/ops.h"
#include "engine/sampling/token_sampler.h"

namespace skein::engine {

using WrapRecorder = std::function<std::unique_ptr<GraphRecorder>(std::unique_ptr<GraphRecorder>)>;

struct TestingBackend {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Device> device;
  MakeTokenSampler make_token_sampler;
  // Makes DecodeGraphs with these options, over what `wrap` makes of the recorder (if it is there).
  std::function<MakeDecodeRunner(const DecodeGraphsOptions&, WrapRecorder wrap)> decode_graphs;
};

TestingBackend MakeTestingBackend();

}  // namespace skein::engine
