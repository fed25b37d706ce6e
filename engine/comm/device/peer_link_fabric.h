// The Fabric of PeerLinks. Internal to engine/comm.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/comm/algorithms/link_fabric.h"
#include "engine/comm/device/peer_link.h"

namespace skein::engine {

class PeerLinkFabric : public LinkFabric {
 public:
  // A memory for each group: a stream and scratch of its own.
  using MakeMemory = std::function<absl::StatusOr<std::unique_ptr<PeerMemory>>()>;

  // `hosts` may serve other fabrics, too: its address is this one's.
  PeerLinkFabric(std::shared_ptr<LinkFabric> hosts, MakeMemory make_memory)
      : hosts_(std::move(hosts)), make_memory_(std::move(make_memory)) {}

  const std::string& Address() const override { return hosts_->Address(); }

  absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id, std::span<const std::string> addresses,
                                                 int rank) override {
    auto memory = make_memory_();
    if (!memory.ok()) return memory.status();
    auto hosts = hosts_->MakeLink(id, addresses, rank);
    if (!hosts.ok()) return hosts.status();
    return std::make_unique<PeerLink>(*std::move(hosts), *std::move(memory));
  }

 private:
  const std::shared_ptr<LinkFabric> hosts_;
  const MakeMemory make_memory_;
};

}  // namespace skein::engine
