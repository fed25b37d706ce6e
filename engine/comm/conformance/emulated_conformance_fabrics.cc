// Fabrics whose collectives are kernels, on the emulator: each rank's run on its OS thread.
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/conformance/conformance.h"
#include "engine/comm/device/kernels/kernel_fabric.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/cuda/testing/near_opener.h"
#include "engine/device/cpu_device.h"

namespace skein::engine {
namespace {

// Few threads, and slots that the suite's sizes pass.
constexpr PeerShape kShape = {
    .lanes = 2, .slot_bytes = 64 << 10, .segment_bytes_min = 4 << 10, .threads = 32};

}  // namespace

// KernelsRefused: every other rank may not open the others' memory.
std::vector<std::string> ConformanceFabrics() { return {"Kernels", "KernelsRefused"}; }

std::string WhyNotConformance(const std::string&) { return ""; }

FabricFactory ConformanceFactory(const std::string& name) {
  return
      [refused = name == "KernelsRefused", hub = std::make_shared<LocalHub>(), rank = 0]() mutable {
        KernelFabricParts parts;
        parts.hosts = hub->MakeFabric();
        parts.below = parts.hosts;
        parts.device = MakeCpuDevice();
        parts.opener = MakeNearOpener(!refused || rank++ % 2 == 0);
        parts.shape = kShape;
        return MakeKernelFabric(parts).value();
      };
}

}  // namespace skein::engine
