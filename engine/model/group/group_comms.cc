#include "engine/model/group/group_comms.h"

#include <algorithm>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

absl::StatusOr<std::unique_ptr<Communicator>> MakeAmong(Fabric* fabric, GroupId id,
                                                        std::span<const std::string> addresses,
                                                        const std::vector<int>& members,
                                                        int place) {
  std::vector<std::string> theirs;
  for (const int member : members) theirs.push_back(addresses[static_cast<size_t>(member)]);
  return fabric->MakeGroup(id, theirs, place);
}

}  // namespace

absl::StatusOr<GroupComms> GroupComms::Make(Fabric* fabric, GroupId id,
                                            std::span<const std::string> addresses, int rank,
                                            std::span<const GroupMode> modes) {
  GroupComms comms;
  absl::StatusOr<std::unique_ptr<Communicator>> all = fabric->MakeGroup(id, addresses, rank);
  if (!all.ok()) return all.status();
  comms.all_ = *std::move(all);
  for (const GroupMode mode : modes) {
    if (mode.ranks() != static_cast<int>(addresses.size()) || mode.sp < 1) {
      return absl::InvalidArgumentError("modes: sp = " + std::to_string(mode.sp) +
                                        ", tp = " + std::to_string(mode.tp) + " in a group of " +
                                        std::to_string(addresses.size()));
    }
    Pair pair{mode, nullptr, nullptr};
    if (mode.sp > 1 && mode.tp > 1) {
      auto sp = MakeAmong(fabric, id, addresses, SpGroupOf(mode, rank), rank % mode.sp);
      if (!sp.ok()) return sp.status();
      auto tp = MakeAmong(fabric, id, addresses, TpGroupOf(mode, rank), rank / mode.sp);
      if (!tp.ok()) return tp.status();
      pair.sp = *std::move(sp);
      pair.tp = *std::move(tp);
    }
    comms.pairs_.push_back(std::move(pair));
  }
  return comms;
}

GroupPart GroupComms::Part(GroupMode mode, CommDeadline deadline) const {
  const auto pair = std::find_if(pairs_.begin(), pairs_.end(),
                                 [&](const Pair& candidate) { return candidate.mode == mode; });
  SKEIN_CHECK_MSG(pair != pairs_.end(), "a mode that the group was not made for");
  const auto one = [&](const std::unique_ptr<Communicator>& own) {
    return own != nullptr ? own.get() : all_.get();
  };
  return {mode, all_.get(), one(pair->sp), one(pair->tp), deadline};
}

void GroupComms::Abort(const absl::Status& reason) {
  all_->Abort(reason);
  for (const Pair& pair : pairs_) {
    if (pair.sp != nullptr) pair.sp->Abort(reason);
    if (pair.tp != nullptr) pair.tp->Abort(reason);
  }
}

}  // namespace skein::engine
