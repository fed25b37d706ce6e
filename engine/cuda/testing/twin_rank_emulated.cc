#include <utility>

#include "engine/comm/device/device_fabric.h"
#include "engine/comm/device/kernels/kernel_fabric.h"
#include "engine/cuda/testing/emulated_backend.h"
#include "engine/cuda/testing/near_opener.h"
#include "engine/cuda/testing/twin_backend.h"
#include "engine/cuda/testing/twin_rank.h"

namespace skein::engine {

std::vector<std::string> TestingWays() { return {"staged", "on_device", "kernels"}; }

std::string WhyNotOn(const std::string&, int) { return ""; }

namespace {

// One that others have, too.
class SharedFabric final : public Fabric {
 public:
  explicit SharedFabric(std::shared_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {}
  const std::string& Address() const override { return fabric_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    return fabric_->MakeGroup(id, addresses, rank);
  }

 private:
  const std::shared_ptr<Fabric> fabric_;
};

// Over a fabric of the device for the calls that have no kernel.
std::unique_ptr<Fabric> MakeKernels(LocalHub* hub) {
  KernelFabricParts parts;
  parts.hosts = hub->MakeFabric();
  parts.below = MakeDeviceFabric(std::make_unique<SharedFabric>(parts.hosts),
                                 MakeEmulatedCudaDevice(), DevicePath::kOnDevice);
  parts.device = MakeEmulatedCudaDevice();
  parts.opener = MakeNearOpener();
  parts.shape = {.lanes = 2, .slot_bytes = 4 << 10, .segment_bytes_min = 1 << 10, .threads = 32};
  return MakeKernelFabric(std::move(parts)).value();
}

}  // namespace

TestingRank MakeTestingRank(const std::string& way, int, LocalHub* hub) {
  TestingBackend backend = MakeTestingBackend();
  TestingRank rank;
  rank.ops = std::move(backend.ops);
  rank.device = std::move(backend.device);
  rank.make_token_sampler = backend.make_token_sampler;
  rank.make_decode_runner = backend.decode_graphs({}, nullptr);
  if (way == "kernels") {
    rank.fabric = MakeKernels(hub);
    return rank;
  }
  rank.fabric = MakeDeviceFabric(hub->MakeFabric(), MakeEmulatedCudaDevice(),
                                 way == "staged" ? DevicePath::kHostStaged : DevicePath::kOnDevice);
  return rank;
}

}  // namespace skein::engine
