#include "scheduler/worker/decode/block_order.h"

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void BlockOrder::Add(RequestId id, int32_t priority, TimeUs arrived_us) {
  const Rank rank{-int64_t{priority}, arrived_us, id};
  SKEIN_CHECK(ranks_.emplace(id, rank).second);
  running_.insert(rank);
}

void BlockOrder::Remove(RequestId id) {
  const auto it = ranks_.find(id);
  if (it == ranks_.end()) return;
  running_.erase(it->second);
  wanting_.erase(it->second);
  preempted_.erase(it->second);
  ranks_.erase(it);
}

void BlockOrder::Want(RequestId id) {
  const Rank& rank = ranks_.at(id);
  SKEIN_CHECK(running_.count(rank) == 1);
  wanting_.insert(rank);
}

void BlockOrder::Satisfy(RequestId id) { wanting_.erase(ranks_.at(id)); }

std::optional<RequestId> BlockOrder::VictimFor(RequestId id) const {
  const Rank& last = *running_.rbegin();
  if (last <= ranks_.at(id)) return std::nullopt;
  return last.id;
}

std::optional<RequestId> BlockOrder::LastRunning() const {
  if (running_.empty()) return std::nullopt;
  return running_.rbegin()->id;
}

void BlockOrder::Preempt(RequestId id) {
  const Rank& rank = ranks_.at(id);
  SKEIN_CHECK(running_.erase(rank) == 1);
  wanting_.erase(rank);
  preempted_.insert(rank);
}

void BlockOrder::Resume(RequestId id) {
  const Rank& rank = ranks_.at(id);
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
  for (const auto& [id, rank] : ranks_) {
    const size_t runs = running_.count(rank);
    if (runs + preempted_.count(rank) == 1 && wanting_.count(rank) <= runs) continue;
    return absl::InternalError(
        absl::StrCat("BlockOrder: ", ToString(id), " is in none or in several of its states"));
  }
  if (running_.size() + preempted_.size() != ranks_.size() || wanting_.size() > running_.size()) {
    return absl::InternalError("BlockOrder: an unknown sequence is listed");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
