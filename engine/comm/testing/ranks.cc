#include "engine/comm/testing/ranks.h"

#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

CommDeadline Later() { return std::chrono::steady_clock::now() + std::chrono::minutes(2); }

TestingRanks::TestingRanks(const FabricFactory& make_fabric, int ranks) {
  for (int r = 0; r < ranks; ++r) fabrics_.push_back(make_fabric());
}

std::vector<std::string> TestingRanks::Addresses(std::span<const int> members) const {
  std::vector<std::string> addresses;
  for (int member : members) addresses.push_back(fabrics_[member]->Address());
  return addresses;
}

std::vector<std::unique_ptr<Communicator>> TestingRanks::Group(std::span<const int> members) {
  const auto addresses = Addresses(members);
  const GroupId id{7, next_group_++};
  std::vector<std::unique_ptr<Communicator>> group;
  for (size_t r = 0; r < members.size(); ++r) {
    auto made = fabrics_[members[r]]->MakeGroup(id, addresses, static_cast<int>(r));
    SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
    group.push_back(*std::move(made));
  }
  return group;
}

std::vector<std::unique_ptr<Communicator>> TestingRanks::GroupOfAll() {
  std::vector<int> members(fabrics_.size());
  std::iota(members.begin(), members.end(), 0);
  return Group(members);
}

std::vector<absl::Status> TestingRanks::Run(
    std::span<const std::unique_ptr<Communicator>> group,
    const std::function<absl::Status(Communicator*)>& body) {
  std::vector<absl::Status> ends(group.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < group.size(); ++r) {
    threads.emplace_back([&, r] { ends[r] = body(group[r].get()); });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace skein::engine
