#include "engine/comm/device/lanes/lane_fabric.h"

#include <utility>

#include "engine/comm/device/lanes/lane_link.h"

namespace skein::engine {

struct LaneFabric::State {
  State(std::shared_ptr<LinkFabric> below, std::shared_ptr<LaneMaker> lanes)
      : hosts(std::move(below)),
        maker(std::move(lanes)),
        memories([maker = maker] { return maker->MakeMemory(); }) {}

  std::shared_ptr<LaneBook> BookOf(const std::string& address) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<LaneBook>& book = books[address];
    if (book == nullptr) {
      book = std::make_shared<LaneBook>(maker, hosts->Address() < address, &made);
    }
    return book;
  }

  // Those that the hosts' fabric has lost.
  void Forget(const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) {
      if (address == hosts->Address() || hosts->Connected(address)) continue;
      std::shared_ptr<LaneBook> gone;  // its lanes end when the lock is free
      const std::lock_guard lock(mutex);
      const auto found = books.find(address);
      if (found == books.end()) continue;
      gone = std::move(found->second);
      books.erase(found);
    }
  }

  // All that died. Looks at them only if another link was lost since the last time.
  void ForgetDead() {
    const uint64_t lost = hosts->Made().lost;
    std::vector<std::string> known;
    {
      const std::lock_guard lock(mutex);
      if (std::exchange(lost_seen, lost) == lost) return;
      for (const auto& [address, book] : books) known.push_back(address);
    }
    Forget(known);
  }

  const std::shared_ptr<LinkFabric> hosts;
  const std::shared_ptr<LaneMaker> maker;
  StreamMemories<StreamMemory> memories;
  std::atomic<uint64_t> made{0};  // lanes
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<LaneBook>> books;  // by the other end's address
  uint64_t lost_seen = 0;                                  // of the hosts' links
};

LaneFabric::LaneFabric(std::shared_ptr<LinkFabric> hosts, std::shared_ptr<LaneMaker> maker)
    : hosts_(hosts), state_(std::make_shared<State>(std::move(hosts), std::move(maker))) {}

LaneFabric::~LaneFabric() = default;

absl::StatusOr<std::unique_ptr<Link>> LaneFabric::MakeLink(GroupId id,
                                                           std::span<const std::string> addresses,
                                                           int rank) {
  auto memory = state_->memories.Take();
  if (!memory.ok()) return memory.status();
  auto hosts = hosts_->MakeLink(id, addresses, rank);
  if (!hosts.ok()) {
    state_->memories.GiveBack(*std::move(memory));
    return hosts.status();
  }
  LaneLink::Parts parts;
  for (const std::string& address : addresses) {
    parts.books.push_back(address == Address() ? nullptr : state_->BookOf(address));
  }
  parts.hosts = *std::move(hosts);
  parts.memory = *std::move(memory);
  parts.name = state_->maker->Name();
  parts.done = [state = state_](std::unique_ptr<StreamMemory> one) {
    state->memories.GiveBack(std::move(one));
    state->ForgetDead();
  };
  parts.failed = [state = state_, members = std::vector(addresses.begin(), addresses.end())] {
    state->Forget(members);
    state->ForgetDead();
  };
  return std::make_unique<LaneLink>(std::move(parts));
}

FabricCounts LaneFabric::Made() const {
  FabricCounts made = LinkFabric::Made();
  made.groups += state_->made.load();
  return made;
}

}  // namespace skein::engine
