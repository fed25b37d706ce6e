// The Fabric of PeerLinks. Internal to engine/comm.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/comm/algorithms/link_fabric.h"
#include "engine/comm/device/peers/peer_link.h"

namespace skein::engine {

using PeerMemories = StreamMemories<PeerMemory>;

class PeerLinkFabric : public LinkFabric {
 public:
  // `hosts` may serve other fabrics, too: its address is this one's. `make_memory`: one for each
  // link that is there at a time.
  PeerLinkFabric(std::shared_ptr<LinkFabric> hosts, PeerMemories::Make make_memory)
      : hosts_(std::move(hosts)),
        memories_(std::make_shared<PeerMemories>(std::move(make_memory))) {}

  const std::string& Address() const override { return hosts_->Address(); }

  absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id, std::span<const std::string> addresses,
                                                 int rank) override {
    auto memory = memories_->Take();
    if (!memory.ok()) return memory.status();
    auto hosts = hosts_->MakeLink(id, addresses, rank);
    if (!hosts.ok()) {
      memories_->GiveBack(*std::move(memory));
      return hosts.status();
    }
    const auto done = [memories = memories_](std::unique_ptr<PeerMemory> one) {
      memories->GiveBack(std::move(one));
    };
    return std::make_unique<PeerLink>(*std::move(hosts), *std::move(memory), done);
  }
  absl::Status Connect(const std::string& address) override { return hosts_->Connect(address); }
  bool Connected(const std::string& address) const override { return hosts_->Connected(address); }

 protected:
  FabricCounts Links() const override { return hosts_->Made(); }

 private:
  const std::shared_ptr<LinkFabric> hosts_;
  const std::shared_ptr<PeerMemories> memories_;
};

}  // namespace skein::engine
