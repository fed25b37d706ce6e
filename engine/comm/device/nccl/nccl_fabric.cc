#include "engine/comm/device/nccl/nccl_fabric.h"

#include <string>
#include <utility>

#include "engine/comm/algorithms/link_fabric.h"
#include "engine/comm/device/lanes/lane_fabric.h"
#include "engine/comm/device/nccl/nccl_api.h"
#include "engine/comm/device/nccl/nccl_lanes.h"
#include "engine/comm/device/nccl/nccl_link.h"
#include "engine/comm/ucx/ucx_link_fabric.h"

namespace skein::engine {
namespace {

class NcclFabric : public LinkFabric {
 public:
  NcclFabric(std::shared_ptr<LinkFabric> hosts, const NcclApi* nccl, int device)
      : hosts_(std::move(hosts)), nccl_(nccl), device_(device) {}

  const std::string& Address() const override { return hosts_->Address(); }

  absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id, std::span<const std::string> addresses,
                                                 int rank) override {
    auto hosts = hosts_->MakeLink(id, addresses, rank);
    if (!hosts.ok()) return hosts.status();
    return std::make_unique<NcclLink>(*std::move(hosts), nccl_, device_);
  }
  absl::Status Connect(const std::string& address) override { return hosts_->Connect(address); }
  bool Connected(const std::string& address) const override { return hosts_->Connected(address); }

 protected:
  FabricCounts Links() const override { return hosts_->Made(); }

 private:
  const std::shared_ptr<LinkFabric> hosts_;
  const NcclApi* const nccl_;
  const int device_;
};

// For a device that exists.
absl::StatusOr<const NcclApi*> NcclOf(int device) {
  const absl::Status status = CheckCudaDevice(device);
  if (!status.ok()) return status;
  return LoadNccl();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric(std::shared_ptr<LinkFabric> hosts,
                                                       int device) {
  const absl::StatusOr<const NcclApi*> nccl = NcclOf(device);
  if (!nccl.ok()) return nccl.status();
  return std::make_unique<NcclFabric>(std::move(hosts), *nccl, device);
}

absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric(const UcxOptions& hosts, int device) {
  const absl::StatusOr<const NcclApi*> nccl = NcclOf(device);
  if (!nccl.ok()) return nccl.status();
  auto fabric = MakeUcxLinkFabric(hosts);
  if (!fabric.ok()) return fabric.status();
  return std::make_unique<NcclFabric>(*std::move(fabric), *nccl, device);
}

absl::StatusOr<std::unique_ptr<RingFabric>> MakeNcclRings(std::shared_ptr<LinkFabric> hosts,
                                                          int device) {
  const absl::StatusOr<const NcclApi*> nccl = NcclOf(device);
  if (!nccl.ok()) return nccl.status();
  return std::make_unique<LaneFabric>(std::move(hosts), MakeNcclLaneMaker(*nccl, device));
}

absl::StatusOr<int> NcclVersion() {
  const absl::StatusOr<const NcclApi*> nccl = LoadNccl();
  if (!nccl.ok()) return nccl.status();
  int version = 0;
  const ncclResult_t result = (*nccl)->get_version(&version);
  if (result == ncclSuccess) return version;
  return absl::UnavailableError((*nccl)->get_error_string(result));
}

}  // namespace skein::engine
