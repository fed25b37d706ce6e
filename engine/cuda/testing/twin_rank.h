// A rank of tests of several instances together: operators, a device and a fabric of its memory,
// and what samples and runs decode steps there, as in a worker; on the emulator or on GPUs,
// whichever the test is linked with. All ranks are in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/fabric.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/device/device.h"
#include "engine/ops/decode_runner.h"
#include "engine/ops/ops.h"
#include "engine/sampling/token_sampler.h"

namespace skein::engine {

struct TestingRank {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Device> device;
  std::unique_ptr<Fabric> fabric;
  MakeTokenSampler make_token_sampler;
  MakeDecodeRunner make_decode_runner;  // on `ops`, which outlive it
};

// The ways that bytes may take between them.
std::vector<std::string> TestingWays();

// Why this machine has not what `ranks` ranks need for the way; "" if it has.
std::string WhyNotOn(const std::string& way, int ranks);

// Rank by rank, of one hub.
TestingRank MakeTestingRank(const std::string& way, int rank, LocalHub* hub);

}  // namespace skein::engine
