#include "engine/comm/ucx/ucx_fabric.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/algorithms/host_memory.h"
#include "engine/comm/group_digest.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "engine/comm/ucx/ucx_mesh.h"
#include "engine/ucx/ucx_address.h"
#include "engine/ucx/ucx_parts.h"

namespace skein::engine {
namespace {

class UcxLink : public Link {
 public:
  UcxLink(std::shared_ptr<UcxMesh> mesh, UcxGroup* group, int rank, int size)
      : mesh_(std::move(mesh)), group_(group), rank_(rank), size_(size) {}
  ~UcxLink() override { mesh_->RemoveGroup(group_); }

  int Rank() const override { return rank_; }
  int Size() const override { return size_; }
  void Send(int to, std::span<const std::byte> data, Signature signature) override {
    mesh_->Send(group_, to, data, signature);
  }
  void Receive(int from, std::span<std::byte> data, Signature signature) override {
    mesh_->Receive(group_, from, data, signature);
  }
  absl::Status Wait(CommDeadline deadline) override { return mesh_->Wait(group_, deadline); }
  absl::Status Health() override { return mesh_->Health(group_); }
  LinkMemory* Memory() override { return &memory_; }
  void Abort(const absl::Status& reason) override { mesh_->Abort(group_, reason); }

 private:
  const std::shared_ptr<UcxMesh> mesh_;
  UcxGroup* const group_;
  const int rank_;
  const int size_;
  HostMemory memory_;
};

class UcxFabric : public LinkFabric {
 public:
  explicit UcxFabric(UcxParts parts)
      : address_(parts.address), mesh_(std::make_shared<UcxMesh>(std::move(parts))) {}

  const std::string& Address() const override { return address_; }

  absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id, std::span<const std::string> addresses,
                                                 int rank) override {
    auto status = CheckMembers(addresses, rank, address_, [](const std::string& address) {
      return OpenAddress(address).has_value();
    });
    if (!status.ok()) return status;
    std::vector<UcxAddress> opened;
    for (const auto& address : addresses) opened.push_back(*OpenAddress(address));
    auto group = mesh_->AddGroup(DigestOf(id, addresses), opened, rank);
    if (!group.ok()) return group.status();
    return std::make_unique<UcxLink>(mesh_, *group, rank, static_cast<int>(addresses.size()));
  }

  absl::Status Connect(const std::string& address) override {
    const std::optional<UcxAddress> opened = OpenAddress(address);
    if (!opened.has_value()) return absl::InvalidArgumentError("the address is not one of UCX's");
    return address == address_ ? absl::OkStatus() : mesh_->Connect(*opened);
  }

  bool Connected(const std::string& address) const override {
    const std::optional<UcxAddress> opened = OpenAddress(address);
    return opened.has_value() && mesh_->Connected(*opened);
  }

 protected:
  FabricCounts Links() const override { return mesh_->Links(); }

 private:
  const std::string address_;
  const std::shared_ptr<UcxMesh> mesh_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinkFabric>> MakeUcxLinkFabric(const UcxOptions& options,
                                                              std::shared_ptr<UcxPlane> plane) {
  auto parts = MakeUcxParts(options, std::move(plane));
  if (!parts.ok()) return parts.status();
  return std::make_unique<UcxFabric>(*std::move(parts));
}

absl::StatusOr<std::unique_ptr<Fabric>> MakeUcxFabric(const UcxOptions& options,
                                                      std::shared_ptr<UcxPlane> plane) {
  return MakeUcxLinkFabric(options, std::move(plane));
}

}  // namespace skein::engine
