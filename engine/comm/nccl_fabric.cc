#include "engine/comm/nccl_fabric.h"

#include <string>
#include <utility>

#include "engine/comm/link_fabric.h"
#include "engine/comm/nccl_link.h"
#include "engine/comm/ucx_link_fabric.h"

namespace skein::engine {
namespace {

class NcclFabric : public LinkFabric {
 public:
  NcclFabric(std::unique_ptr<LinkFabric> hosts, int device)
      : hosts_(std::move(hosts)), device_(device) {}

  const std::string& Address() const override { return hosts_->Address(); }

  absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id, std::span<const std::string> addresses,
                                                 int rank) override {
    auto hosts = hosts_->MakeLink(id, addresses, rank);
    if (!hosts.ok()) return hosts.status();
    return std::make_unique<NcclLink>(*std::move(hosts), device_);
  }

 private:
  const std::unique_ptr<LinkFabric> hosts_;
  const int device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric(const UcxOptions& hosts, int device) {
  const absl::Status status = CheckCudaDevice(device);
  if (!status.ok()) return status;
  auto fabric = MakeUcxLinkFabric(hosts);
  if (!fabric.ok()) return fabric.status();
  return std::make_unique<NcclFabric>(*std::move(fabric), device);
}

}  // namespace skein::engine
