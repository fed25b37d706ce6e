// The Fabric of PeerLinks. Internal to engine/comm.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/algorithms/link_fabric.h"
#include "engine/comm/device/peer_link.h"

namespace skein::engine {

// The memories (a stream, scratch, what peers have opened) of links that ended well serve later
// links: a ring makes none. Thread-safe.
class PeerMemories {
 public:
  using Make = std::function<absl::StatusOr<std::unique_ptr<PeerMemory>>()>;
  explicit PeerMemories(Make make) : make_(std::move(make)) {}

  absl::StatusOr<std::unique_ptr<PeerMemory>> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto memory = std::move(idle_.back());
        idle_.pop_back();
        return memory;
      }
    }
    return make_();
  }
  // REQUIRES: nothing of it is under way, and none of its copies has failed.
  void GiveBack(std::unique_ptr<PeerMemory> memory) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(memory));
  }

 private:
  const Make make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PeerMemory>> idle_;
};

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

 protected:
  uint64_t Links() const override { return hosts_->Made().links; }

 private:
  const std::shared_ptr<LinkFabric> hosts_;
  const std::shared_ptr<PeerMemories> memories_;
};

}  // namespace skein::engine
