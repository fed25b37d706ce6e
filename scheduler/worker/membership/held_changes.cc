#include "scheduler/worker/membership/held_changes.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void HeldChanges::Holds(const HeldRequest& held, TimeUs chunk_since_us) {
  if (held_.emplace(held.id, held.epoch).second) digest_.Add(held.id, held.epoch);
  changes_[{held.id, held.epoch}] = {held, chunk_since_us};
}

bool HeldChanges::Drop(RequestId id, Epoch epoch) {
  if (held_.erase({id, epoch}) == 0) return false;
  digest_.Remove(id, epoch);
  changes_.erase({id, epoch});
  return true;
}

void HeldChanges::Gone(RequestId id, Epoch epoch) {
  if (Drop(id, epoch)) gone_.push_back({.id = id, .epoch = epoch});
}

std::vector<HeldRequest> HeldChanges::TakeChanges(TimeUs now) {
  std::vector<HeldRequest> taken;
  for (auto& [key, change] : std::exchange(changes_, {})) {
    taken.push_back(change.held);
    if (change.chunk_since_us == kNever) continue;
    taken.back().chunk_running_us = now - change.chunk_since_us;
  }
  return taken;
}

void HeldChanges::AllTold() {
  changes_.clear();
  gone_.clear();
}

absl::Status HeldChanges::CheckInvariants(const std::vector<HeldRequest>& held) const {
  std::set<Key> keys;
  for (const HeldRequest& one : held) keys.emplace(one.id, one.epoch);
  if (keys != held_ || DigestOf(held) != digest_.value()) {
    return absl::InternalError(absl::StrCat("HeldChanges: ", held.size(), " requests are held, ",
                                            held_.size(), " were reported"));
  }
  for (const auto& [key, change] : changes_) {
    if (held_.count(key) > 0) continue;
    return absl::InternalError(absl::StrCat("HeldChanges: ", ToString(key.first),
                                            " has a change to report but is not held"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
