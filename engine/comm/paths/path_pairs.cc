// PathFabric's pairs: links to other processes, and the paths that were tried on them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/comm/paths/member_address.h"
#include "engine/comm/paths/path_fabric.h"
#include "engine/comm/paths/path_parts.h"

namespace skein::engine {
namespace {

constexpr auto kLookForEnd = std::chrono::milliseconds(5);

// The name of all pairs that try a path: they differ in their members.
GroupId PairOn(CommPath path) { return {0x5045455250414952u, path == CommPath::kNccl ? 3u : 2u}; }

// The end of a ring does not wake who waits for the trial of a pair: the pair is not the ring's.
absl::Status Await(TriedCommunicator* pair, CommDeadline deadline, const std::atomic<bool>& left) {
  for (;;) {
    if (left) return absl::UnavailableError("the ring was given up");
    const auto until = std::min(deadline, std::chrono::steady_clock::now() + kLookForEnd);
    const absl::Status works = pair->AwaitFirst(until);
    if (!absl::IsDeadlineExceeded(works) || until == deadline) return works;
  }
}

}  // namespace

absl::Status PathFabric::Connect(const std::string& address) {
  const std::optional<MemberAddress> opened = OpenMember(address);
  if (!opened.has_value()) {
    return absl::InvalidArgumentError("the address is not one of this kind of fabric");
  }
  if (address == address_) return absl::OkStatus();
  const absl::Status linked = ways_.host->Connect(opened->host);
  if (!linked.ok() || IsTried(address)) return linked;
  EndDeadPairs();
  absl::Status status = TryPair(address, std::nullopt);
  for (const std::string& other : ToTryOverNccl(address)) {
    if (status.ok()) status = TryPair(other, CommPath::kNccl);
  }
  return status;
}

bool PathFabric::Connected(const std::string& address) const {
  const std::optional<MemberAddress> opened = OpenMember(address);
  return opened.has_value() && ways_.host->Connected(opened->host);
}

// Whether Connect has nothing more to try with `address`. (It has where the pair can take no path,
// which it finds out again each time.)
bool PathFabric::IsTried(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto any = pairs_.lower_bound({address, CommPath{}});
  if (any == pairs_.end() || any->first.first != address) return false;
  return !any_over_nccl_ || pairs_.contains({address, CommPath::kNccl});
}

size_t PathFabric::TriedPairs() {
  const std::lock_guard lock(mutex_);
  return pairs_.size();
}

// Looks at all pairs only if another process was lost since the last time.
void PathFabric::EndDeadPairs() {
  const uint64_t lost = ways_.host->Made().lost;
  std::set<std::string> dead;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(lost_seen_, lost) == lost) return;
    for (const auto& [key, tried] : pairs_) dead.insert(key.first);
  }
  std::erase_if(dead, [this](const std::string& address) { return Connected(address); });
  std::vector<std::shared_ptr<Tried>> ended;  // when the lock is free, for a trial may want it
  const std::lock_guard lock(mutex_);
  for (auto pair = pairs_.begin(); pair != pairs_.end();) {
    const bool ends = dead.contains(pair->first.first);
    if (ends) ended.push_back(std::move(pair->second));
    pair = ends ? pairs_.erase(pair) : std::next(pair);
  }
}

// Where the pool spans nodes its rings may go over NCCL, on one node too: the newcomer's pair is to
// be tried over it, and when the pool begins to span nodes, the pairs of all that came before.
std::vector<std::string> PathFabric::ToTryOverNccl(const std::string& newcomer) {
  const std::lock_guard lock(mutex_);
  if (!any_over_nccl_) return {};
  if (std::exchange(all_over_nccl_, true)) return {newcomer};
  std::vector<std::string> others;
  for (const auto& [key, tried] : pairs_) {
    if (others.empty() || others.back() != key.first) others.push_back(key.first);
  }
  return others;
}

// Tries the path for the pair, once; of nullopt, the one that the pair alone would take. Both ends
// do, under the same name and in the same order of ranks.
absl::Status PathFabric::TryPair(const std::string& address, std::optional<CommPath> path) {
  std::vector<std::string> both = {address_, address};
  std::sort(both.begin(), both.end());
  absl::StatusOr<Members> members = MembersOf(both, both[0] == address_ ? 0 : 1);
  if (!members.ok()) return members.status();
  absl::StatusOr<PathChoice> choice = ChoosePath(members->all);
  if (!choice.ok()) return choice.status();
  if (path.has_value() && choice->path != *path) {
    if (choice->wanted) return absl::OkStatus();
    members->all[0].wants = path;
    choice = ChoosePath(members->all);
    if (!choice.ok()) return absl::OkStatus();  // the pair cannot take it, nor can a ring with it
    choice->wanted = false;
  }
  // Where NCCL is wanted, the trial makes the lanes, and nothing hangs on its result.
  const bool lanes = choice->path == CommPath::kNccl;
  if (!lanes && (choice->path == CommPath::kHost || choice->wanted)) return absl::OkStatus();
  const PairKey key = {address, choice->path};
  const std::lock_guard lock(mutex_);
  if (pairs_.contains(key)) return absl::OkStatus();
  absl::StatusOr<Tried> tried = MakeTried(Use::kPair, *choice, PairOn(choice->path), *members);
  if (!tried.ok()) return tried.status();
  pairs_[key] = std::make_shared<Tried>(*std::move(tried));
  any_over_nccl_ = any_over_nccl_ || lanes;
  return absl::OkStatus();
}

// The pair's trial, which is begun if it was not. Null: the pair cannot take the path.
absl::StatusOr<std::shared_ptr<PathFabric::Tried>> PathFabric::PairOf(const std::string& address,
                                                                      CommPath path) {
  const auto look = [&]() -> std::shared_ptr<Tried> {
    const std::lock_guard lock(mutex_);
    const auto found = pairs_.find({address, path});
    return found == pairs_.end() ? nullptr : found->second;
  };
  if (auto known = look(); known != nullptr) return known;
  absl::Status status = Connect(address);
  if (status.ok()) status = TryPair(address, path);
  if (!status.ok()) return status;
  return look();
}

// That this rank's pairs can use the path of their ring. They were tried before any ring, unless
// the ring is the first that is heard of a member. `left`: the ring was given up.
absl::Status PathFabric::PairsWork(CommPath path, const Members& members, CommDeadline deadline,
                                   const std::atomic<bool>& left) {
  for (size_t rank = 0; rank < members.addresses.size(); ++rank) {
    if (static_cast<int>(rank) == members.rank) continue;
    const absl::StatusOr<std::shared_ptr<Tried>> pair = PairOf(members.addresses[rank], path);
    if (!pair.ok()) return pair.status();
    if (*pair == nullptr) return absl::UnavailableError("the pair cannot take the path");
    const absl::Status works = Await((*pair)->group.get(), deadline, left);
    if (works.ok()) continue;
    const std::string why = (*pair)->refusal->Get();
    return absl::UnavailableError(absl::StrCat("rank ", members.rank, " and rank ", rank, ": ",
                                               why.empty() ? std::string(works.message()) : why));
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
