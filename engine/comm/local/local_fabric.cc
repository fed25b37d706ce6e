#include "engine/comm/local/local_fabric.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/comm/algorithms/host_memory.h"
#include "engine/comm/algorithms/link_fabric.h"
#include "engine/comm/group_digest.h"
#include "engine/comm/local/local_group.h"

namespace skein::engine {

// The groups that some member has yet to leave.
struct LocalHubState {
  struct Entry {
    std::shared_ptr<LocalGroup> group;
    std::vector<std::string> addresses;
  };

  std::mutex mutex;
  uint64_t next_fabric = 0;
  std::map<GroupDigest, Entry> groups;
};

namespace {

class LocalLink : public Link {
 public:
  LocalLink(std::shared_ptr<LocalHubState> hub, GroupDigest key, std::shared_ptr<LocalGroup> group,
            int rank)
      : hub_(std::move(hub)), key_(key), group_(std::move(group)), rank_(rank) {}

  ~LocalLink() override {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    if (group_->Leave(rank_)) hub_->groups.erase(key_);
  }

  int Rank() const override { return rank_; }
  int Size() const override { return group_->Size(); }
  void Send(int to, std::span<const std::byte> data, Signature signature) override {
    group_->Send(rank_, to, data, signature);
  }
  void Receive(int from, std::span<std::byte> data, Signature signature) override {
    group_->Receive(from, rank_, data, signature);
  }
  absl::Status Wait(CommDeadline deadline) override { return group_->Wait(rank_, deadline); }
  absl::Status Health() override { return group_->Health(); }
  LinkMemory* Memory() override { return &memory_; }
  void Abort(const absl::Status& reason) override { group_->Break(reason); }

 private:
  const std::shared_ptr<LocalHubState> hub_;
  const GroupDigest key_;
  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
  HostMemory memory_;
};

class LocalFabric : public LinkFabric {
 public:
  LocalFabric(std::shared_ptr<LocalHubState> hub, std::string address)
      : hub_(std::move(hub)), address_(std::move(address)) {}
  ~LocalFabric() override;

  const std::string& Address() const override { return address_; }
  absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id, std::span<const std::string> addresses,
                                                 int rank) override;
  absl::Status Connect(const std::string& address) override;
  bool Connected(const std::string& address) const override {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    return linked_.contains(address);
  }

 protected:
  FabricCounts Links() const override {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    return {.links = linked_.size()};
  }

 private:
  bool IsOurs(const std::string& address) const {
    return absl::StartsWith(address, address_.substr(0, address_.rfind('/') + 1));
  }

  const std::shared_ptr<LocalHubState> hub_;
  const std::string address_;
  std::set<std::string> linked_;  // under the hub's lock
};

// The end of a process: it leaves the groups that others made and it never joined.
LocalFabric::~LocalFabric() {
  std::lock_guard<std::mutex> lock(hub_->mutex);
  std::erase_if(hub_->groups, [&](auto& item) {
    auto& [group, addresses] = item.second;
    for (size_t rank = 0; rank < addresses.size(); ++rank) {
      if (addresses[rank] == address_) return group->Leave(static_cast<int>(rank));
    }
    return false;
  });
}

absl::StatusOr<std::unique_ptr<Link>> LocalFabric::MakeLink(GroupId id,
                                                            std::span<const std::string> addresses,
                                                            int rank) {
  auto status = CheckMembers(addresses, rank, address_,
                             [&](const std::string& address) { return IsOurs(address); });
  if (!status.ok()) return status;
  const GroupDigest key = DigestOf(id, addresses);
  std::lock_guard<std::mutex> lock(hub_->mutex);
  auto& entry = hub_->groups[key];
  if (entry.group == nullptr) {
    entry = {std::make_shared<LocalGroup>(static_cast<int>(addresses.size())),
             {addresses.begin(), addresses.end()}};
  }
  if (!entry.group->Join(rank)) {
    return absl::AlreadyExistsError(absl::StrCat("group ", id.high, ":", id.low, " is in use"));
  }
  linked_.insert(addresses.begin(), addresses.end());
  linked_.erase(address_);
  return std::make_unique<LocalLink>(hub_, key, entry.group, rank);
}

absl::Status LocalFabric::Connect(const std::string& address) {
  if (!IsOurs(address)) return absl::InvalidArgumentError("the address is not one of this hub");
  std::lock_guard<std::mutex> lock(hub_->mutex);
  if (address != address_) linked_.insert(address);
  return absl::OkStatus();
}

}  // namespace

LocalHub::LocalHub() : state_(std::make_shared<LocalHubState>()) {}

std::unique_ptr<RingFabric> LocalHub::MakeFabric() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return std::make_unique<LocalFabric>(
      state_, absl::StrCat("local/", reinterpret_cast<uintptr_t>(state_.get()), "/",
                           state_->next_fabric++));
}

}  // namespace skein::engine
