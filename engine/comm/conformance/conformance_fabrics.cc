// The fabrics of processes of one host, and those of FarDevices.
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/conformance/conformance.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/far_fabric.h"
#include "engine/comm/testing/far_lanes.h"
#include "engine/comm/testing/far_paths.h"
#include "engine/comm/testing/fault_communicator.h"
#include "engine/comm/ucx/ucx_fabric.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// Its communicators pass through a decorator that has nothing to inject.
class FaultlessFabric : public Fabric {
 public:
  explicit FaultlessFabric(std::unique_ptr<Fabric> inner) : inner_(std::move(inner)) {}

  const std::string& Address() const override { return inner_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto made = inner_->MakeGroup(id, addresses, rank);
    if (!made.ok()) return made.status();
    return std::make_unique<FaultCommunicator>(*std::move(made),
                                               [](uint64_t) { return CommFault{}; });
  }

 private:
  const std::unique_ptr<Fabric> inner_;
};

// UCX alone, by a plane that a transport uses, too, whose thread takes messages of both.
class SharedPlaneFabric : public Fabric {
 public:
  SharedPlaneFabric() {
    const UcxOptions options = {.tls = "self,posix", .own_wires = false};
    const auto plane = UcxPlane::Make(options).value();
    transport_ = MakeUcxTransport(options, nullptr, nullptr, plane).value();
    fabric_ = MakeUcxFabric(options, plane).value();
    poller_ = std::thread([this] {
      std::vector<TransferCompletion> none;
      while (!stopping_) transport_->Poll(1, std::chrono::seconds(1), &none);
    });
  }
  ~SharedPlaneFabric() override {
    fabric_.reset();
    stopping_ = true;
    transport_->Wake();
    poller_.join();
  }

  const std::string& Address() const override { return fabric_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    return fabric_->MakeGroup(id, addresses, rank);
  }

 private:
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Fabric> fabric_;
  std::atomic<bool> stopping_ = false;
  std::thread poller_;
};

}  // namespace

// Faultless: behind a FaultCommunicator that has nothing to inject. FarStaged, FarOnDevice,
// FarPeers, FarLanes: in a device's memory (far_fabric.h, far_lanes.h). FarPaths: a PathFabric's
// groups over FarPeers; FarPathsRefused: every other rank may not open the others' memory.
std::vector<std::string> ConformanceFabrics() {
  return {"Local",       "Faultless", "UcxSharedMemory", "UcxTcp",   "UcxSharedPlane", "FarStaged",
          "FarOnDevice", "FarPeers",  "FarLanes",        "FarPaths", "FarPathsRefused"};
}

std::string WhyNotConformance(const std::string&) { return ""; }

FabricFactory ConformanceFactory(const std::string& name) {
  if (name == "Local") {
    return [hub = std::make_shared<LocalHub>()] { return hub->MakeFabric(); };
  }
  if (name == "FarPeers") return MakeFarPeers;
  if (name == "FarLanes") {
    return [hub = std::make_shared<FarLaneHub>()] { return MakeFarLanes(hub); };
  }
  if (name == "UcxSharedPlane") return [] { return std::make_unique<SharedPlaneFabric>(); };
  if (name == "FarPaths" || name == "FarPathsRefused") {
    return [refused = name == "FarPathsRefused", rank = 0]() mutable {
      FarPaths paths{.self = {.gpu = "GPU", .realm = "node"}};
      if (refused && rank++ % 2 == 0) paths.fault = FarFault::kMayNotOpen;
      return MakeBufferedFarPaths(paths);
    };
  }
  if (name == "FarStaged" || name == "FarOnDevice") {
    const auto path = name == "FarStaged" ? DevicePath::kHostStaged : DevicePath::kOnDevice;
    return [path, hub = std::make_shared<LocalHub>()] {
      return MakeFarFabric(hub->MakeFabric(), path);
    };
  }
  if (name == "Faultless") {
    return [hub = std::make_shared<LocalHub>()] {
      return std::make_unique<FaultlessFabric>(hub->MakeFabric());
    };
  }
  return [tls = name == "UcxSharedMemory" ? "self,shm" : "self,tcp"] {
    auto fabric = MakeUcxFabric({.tls = tls});
    SKEIN_CHECK_MSG(fabric.ok(), fabric.status().ToString().c_str());
    return *std::move(fabric);
  };
}

}  // namespace skein::engine
