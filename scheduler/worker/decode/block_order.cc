#include "scheduler/worker/decode/block_order.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void BlockOrder::Add(RequestId id, const FairOwner& owner, TimeUs arrived_us) {
  const Rank rank{-int64_t{owner.priority}, arrived_us, id};
  const Owner owned{std::string(owner.tenant), std::max<int64_t>(1, owner.weight)};
  SKEIN_CHECK(known_.emplace(id, Known{rank, owned}).second);
  ++tenants_[owned.tenant];
  running_.insert(rank);
}

void BlockOrder::Remove(RequestId id) {
  const auto it = known_.find(id);
  if (it == known_.end()) return;
  const Rank& rank = it->second.rank;
  running_.erase(rank);
  wanting_.erase(rank);
  preempted_.erase(rank);
  const auto tenant = tenants_.find(it->second.owner.tenant);
  if (--tenant->second == 0) tenants_.erase(tenant);
  known_.erase(it);
}

void BlockOrder::Want(RequestId id) {
  const Rank& rank = known_.at(id).rank;
  SKEIN_CHECK(running_.count(rank) == 1);
  wanting_.insert(rank);
}

void BlockOrder::Satisfy(RequestId id) { wanting_.erase(known_.at(id).rank); }

std::optional<RequestId> BlockOrder::VictimFor(RequestId id, BlocksOf blocks_of) const {
  const auto behind = running_.upper_bound(known_.at(id).rank);
  if (behind == running_.end()) return std::nullopt;
  return VictimFrom(behind, blocks_of);
}

std::optional<RequestId> BlockOrder::VictimOfAll(BlocksOf blocks_of) const {
  if (running_.empty()) return std::nullopt;
  const auto first = running_.begin();
  return VictimFrom(running_.size() == 1 ? first : std::next(first), blocks_of);
}

RequestId BlockOrder::VictimFrom(std::set<Rank>::const_iterator from, BlocksOf blocks_of) const {
  const Rank& last = *running_.rbegin();
  if (tenants_.size() == 1) return last.id;
  struct Holds {
    int64_t blocks = 0;
    int64_t weight = 1;
    const Rank* last = nullptr;  // of those that may be preempted
  };
  std::map<std::string_view, Holds> tenants;
  for (auto it = running_.lower_bound(Rank{last.before, INT64_MIN, {}}); it != running_.end();
       ++it) {
    const Owner& owner = known_.at(it->id).owner;
    Holds& holds = tenants[owner.tenant];
    holds.blocks += blocks_of(it->id);
    holds.weight = owner.weight;
    if (*it >= *from) holds.last = &*it;
  }
  const Holds* most = nullptr;
  for (const auto& [tenant, holds] : tenants) {
    if (holds.last == nullptr) continue;
    if (most != nullptr) {
      const int64_t ours = holds.blocks * most->weight, theirs = most->blocks * holds.weight;
      if (ours < theirs || (ours == theirs && *holds.last < *most->last)) continue;
    }
    most = &holds;
  }
  return most->last->id;
}

void BlockOrder::Preempt(RequestId id) {
  const Rank& rank = known_.at(id).rank;
  SKEIN_CHECK(running_.erase(rank) == 1);
  wanting_.erase(rank);
  preempted_.insert(rank);
}

void BlockOrder::Resume(RequestId id) {
  const Rank& rank = known_.at(id).rank;
  SKEIN_CHECK(preempted_.erase(rank) == 1);
  running_.insert(rank);
}

std::vector<RequestId> BlockOrder::All(const std::set<Rank>& ranks) {
  std::vector<RequestId> ids;
  for (const Rank& rank : ranks) ids.push_back(rank.id);
  return ids;
}

std::vector<RequestId> BlockOrder::Preempted() const { return All(preempted_); }
std::vector<RequestId> BlockOrder::Running() const { return All(running_); }

absl::Status BlockOrder::CheckInvariants() const {
  std::map<std::string, int64_t> tenants;
  for (const auto& [id, known] : known_) {
    const Rank& rank = known.rank;
    ++tenants[known.owner.tenant];
    const size_t runs = running_.count(rank);
    if (runs + preempted_.count(rank) == 1 && wanting_.count(rank) <= runs) continue;
    return absl::InternalError(
        absl::StrCat("BlockOrder: ", ToString(id), " is in none or in several of its states"));
  }
  if (running_.size() + preempted_.size() != known_.size() || wanting_.size() > running_.size()) {
    return absl::InternalError("BlockOrder: an unknown sequence is listed");
  }
  if (tenants != tenants_) {
    return absl::InternalError("BlockOrder: the sequences of tenants are miscounted");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
