#include <utility>

#include "engine/comm/device/device_fabric.h"
#include "engine/cuda/testing/emulated_backend.h"
#include "engine/cuda/testing/twin_rank.h"

namespace skein::engine {

std::vector<std::string> TestingWays() { return {"staged", "on_device"}; }

std::string WhyNotOn(const std::string&, int) { return ""; }

TestingRank MakeTestingRank(const std::string& way, int, LocalHub* hub) {
  TestingRank rank;
  rank.ops = MakeEmulatedCudaOps();
  rank.device = MakeEmulatedCudaDevice();
  rank.fabric = MakeDeviceFabric(hub->MakeFabric(), MakeEmulatedCudaDevice(),
                                 way == "staged" ? DevicePath::kHostStaged : DevicePath::kOnDevice);
  return rank;
}

}  // namespace skein::engine
