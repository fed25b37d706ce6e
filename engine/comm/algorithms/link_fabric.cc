#include "engine/comm/algorithms/link_fabric.h"

#include <utility>

#include "engine/comm/algorithms/link_communicator.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<Communicator>> LinkFabric::MakeGroup(
    GroupId id, std::span<const std::string> addresses, int rank) {
  auto link = MakeLink(id, addresses, rank);
  if (!link.ok()) return link.status();
  ++groups_;
  return std::make_unique<LinkCommunicator>(*std::move(link));
}

FabricCounts LinkFabric::Made() const {
  FabricCounts made = Links();
  made.groups = groups_.load();
  return made;
}

absl::StatusOr<std::unique_ptr<Communicator>> LinkFabric::OpenRing(
    GroupId name, std::span<const std::string> addresses, int rank) {
  auto link = MakeLink(name, addresses, rank);
  if (!link.ok()) return link.status();
  return std::make_unique<LinkCommunicator>(*std::move(link));
}

}  // namespace skein::engine
