#include "engine/comm/testing/far_paths.h"

#include <utility>

#include "engine/comm/device/lanes/lane_fabric.h"
#include "engine/comm/testing/device_buffers.h"
#include "engine/comm/testing/far_peer.h"
#include "engine/comm/testing/fault_communicator.h"
#include "engine/comm/testing/near_fabric.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kFarBytes = size_t{512} << 20;

class WrongBytes final : public FaultCommunicator {
 public:
  explicit WrongBytes(std::unique_ptr<Communicator> below)
      : FaultCommunicator(std::move(below), [](uint64_t) { return CommFault{}; }) {}
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    const absl::Status status = FaultCommunicator::AllGather(send, receive, deadline);
    if (status.ok()) *static_cast<std::byte*>(NearOfAny(receive.data())) ^= std::byte{1};
    return status;
  }
};

absl::StatusOr<std::unique_ptr<Communicator>> WithFault(
    absl::StatusOr<std::unique_ptr<Communicator>> group, FarFault fault) {
  if (!group.ok()) return group;
  if (fault == FarFault::kHangs) {
    return std::make_unique<FaultCommunicator>(
        *std::move(group), [](uint64_t) { return CommFault{.kind = CommFault::kStall}; });
  }
  if (fault == FarFault::kWrongBytes) return std::make_unique<WrongBytes>(*std::move(group));
  return group;
}

class FaultyFabric final : public Fabric {
 public:
  FaultyFabric(std::shared_ptr<Fabric> below, FarFault fault)
      : below_(std::move(below)), fault_(fault) {}

  const std::string& Address() const override { return below_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    if (fault_ == FarFault::kCannotBegin) return absl::ResourceExhaustedError("no stream left");
    return WithFault(below_->MakeGroup(id, addresses, rank), fault_);
  }

 private:
  const std::shared_ptr<Fabric> below_;
  const FarFault fault_;
};

class FaultyRings final : public RingFabric {
 public:
  FaultyRings(std::shared_ptr<RingFabric> below, FarFault fault)
      : below_(std::move(below)), fault_(fault) {}

  const std::string& Address() const override { return below_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    return WithFault(below_->MakeGroup(id, addresses, rank), fault_);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> OpenRing(GroupId name,
                                                         std::span<const std::string> addresses,
                                                         int rank) override {
    return WithFault(below_->OpenRing(name, addresses, rank), fault_);
  }
  absl::Status Connect(const std::string& address) override { return below_->Connect(address); }
  bool Connected(const std::string& address) const override { return below_->Connected(address); }
  FabricCounts Made() const override { return below_->Made(); }

 private:
  const std::shared_ptr<RingFabric> below_;
  const FarFault fault_;
};

}  // namespace

FarPathFabric MakeFarPaths(const FarPaths& paths) {
  auto made = MakeUcxLinkFabric({.tls = paths.tls});
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  const std::shared_ptr<LinkFabric> hosts = *std::move(made);
  FarPathFabric out;
  out.device = std::make_shared<FarDevice>(kFarBytes);
  CommWays ways;
  ways.host = hosts;
  const auto may_open = [refused = paths.fault == FarFault::kMayNotOpen] {
    return refused ? absl::UnavailableError("the container forbids it") : absl::OkStatus();
  };
  if (!paths.self.realm.empty()) {
    ways.ipc =
        std::make_shared<FaultyFabric>(MakeFarPeerFabric(hosts, out.device, may_open), paths.fault);
  }
  if (paths.self.nccl_version > 0) {
    ways.nccl = std::make_shared<FaultyFabric>(MakeNearFabric(hosts, out.device), paths.fault);
    static const auto own_hub = std::make_shared<FarLaneHub>();
    const auto may_make = [refused = paths.fault == FarFault::kCannotBegin] {
      return refused ? absl::ResourceExhaustedError("no stream left") : absl::OkStatus();
    };
    ways.lanes = std::make_shared<FaultyRings>(
        std::make_shared<LaneFabric>(
            hosts,
            MakeFarLaneMaker(paths.lanes != nullptr ? paths.lanes : own_hub, out.device, may_make)),
        paths.fault);
  }
  auto fabric = PathFabric::Make(paths.self, std::move(ways),
                                 {out.device, MakeFarCopyStream(out.device)}, paths.options);
  SKEIN_CHECK_MSG(fabric.ok(), fabric.status().ToString().c_str());
  out.fabric = *std::move(fabric);
  return out;
}

std::unique_ptr<Fabric> MakeBufferedFarPaths(const FarPaths& paths) {
  FarPathFabric made = MakeFarPaths(paths);
  return MakeBufferedFabric(std::move(made.fabric), made.device);
}

}  // namespace skein::engine
