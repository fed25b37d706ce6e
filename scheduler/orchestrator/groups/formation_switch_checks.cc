// What FormationSwitch looks up and checks: whether instances can be bound now, and its invariants.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/orchestrator/groups/formation_switch.h"

namespace skein::scheduler::orchestrator {

namespace {

using Held = FormationSwitch::Held;
using Live = FormationSwitch::Live;
using Stage = FormationSwitch::Stage;

bool All(const Live& live, Held held) {
  return std::all_of(live.held.begin(), live.held.end(), [&](Held h) { return h == held; });
}

bool Any(const Live& live, Held held) {
  return std::find(live.held.begin(), live.held.end(), held) != live.held.end();
}

const char* NameOf(Stage stage) {
  switch (stage) {
    case Stage::kPreparing:
    case Stage::kCommitting:
      return "is being bound";
    case Stage::kBound:
      return "is bound";
    case Stage::kReleasing:
    case Stage::kEnding:
      return "is being released";
  }
  return "is in an unknown stage";
}

absl::Status Violated(int number, uint64_t epoch, const char* what) {
  return absl::InternalError(
      absl::StrCat("FormationSwitch ", number, ": epoch ", epoch, " ", what));
}

}  // namespace

// ---- looking ----

std::optional<size_t> Live::RankOf(InstanceId instance) const {
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank] == instance && held[rank] != Held::kNothing) return rank;
  }
  return std::nullopt;
}

FormationSwitch::LiveIt FormationSwitch::Find(InstanceId instance) {
  return std::find_if(live_.begin(), live_.end(),
                      [&](const auto& entry) { return entry.second.RankOf(instance).has_value(); });
}

const FormationSwitch::Live* FormationSwitch::LiveOf(InstanceId instance) const {
  for (const auto& [epoch, live] : live_) {
    if (live.RankOf(instance)) return &live;
  }
  return nullptr;
}

TimeUs FormationSwitch::NextDeadline() const {
  TimeUs next = kNever;
  for (const auto& [epoch, live] : live_) next = std::min(next, live.due_us);
  for (const auto& [instance, stray] : strays_) next = std::min(next, stray.due_us);
  return next;
}

// ---- checks ----

absl::Status FormationSwitch::CheckFree(const Subset& subset,
                                        std::optional<SharedMode> shared) const {
  std::vector<std::string> held;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    std::string text = HeldBy(order_.members[static_cast<size_t>(i)].instance);
    if (!text.empty()) held.push_back(std::move(text));
  }
  if (held.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot make ", FormationName(subset.size, shared), ": ", absl::StrJoin(held, "; ")));
}

// Why the instance cannot be bound now; empty: it can.
std::string FormationSwitch::HeldBy(InstanceId instance) const {
  if (left_.contains(instance)) return absl::StrCat("instance ", instance.value, " has left");
  if (const auto stray = strays_.find(instance); stray != strays_.end()) {
    return absl::StrCat("instance ", instance.value, " has not told the end of epoch ",
                        stray->second.epoch);
  }
  const Live* live = LiveOf(instance);
  if (live == nullptr) return "";
  return absl::StrCat("instance ", instance.value, " ", NameOf(live->stage), " (",
                      FormationName(live->subset.size, live->mode), ", epoch ", live->report.epoch,
                      ")");
}

absl::Status FormationSwitch::CheckInvariants() const {
  std::set<InstanceId> holders;
  for (const auto& [instance, stray] : strays_) {
    holders.insert(instance);
    if (stray.due_us == kNever) return Violated(4, stray.epoch, "of a stray has no deadline");
  }
  for (const auto& [epoch, live] : live_) {
    for (size_t rank = 0; rank < live.members.size(); ++rank) {
      if (live.held[rank] == Held::kNothing) continue;
      if (!holders.insert(live.members[rank]).second) {
        return Violated(1, epoch, "has a member that holds another one");
      }
    }
    if (epoch > epochs_->last()) return Violated(3, epoch, "was never given out");
    if (absl::Status status = CheckLive(epoch, live); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FormationSwitch::CheckLive(uint64_t epoch, const Live& live) const {
  const size_t size = live.members.size();
  if (!IsBindable(live.subset, static_cast<size_t>(live.subset.end())) ||
      static_cast<size_t>(live.subset.size) != size || live.held.size() != size) {
    return Violated(2, epoch, "is of no aligned subset");
  }
  if ((live.due_us == kNever) != (live.stage == Stage::kBound && !live.turn)) {
    return Violated(4, epoch, "has a deadline that does not fit its stage");
  }
  const bool is_half =
      (live.stage < Stage::kReleasing && Any(live, Held::kNothing)) ||
      (live.stage == Stage::kPreparing && !Any(live, Held::kAsked)) ||
      (live.stage == Stage::kCommitting && (Any(live, Held::kAsked) || All(live, Held::kBound))) ||
      (live.stage == Stage::kBound && !All(live, Held::kBound)) || All(live, Held::kNothing);
  return is_half ? Violated(5, epoch, "has members that do not fit its stage")
                 : CheckTurn(epoch, live);
}

absl::Status FormationSwitch::CheckTurn(uint64_t epoch, const Live& live) const {
  if (!live.turn) return absl::OkStatus();
  if (!live.mode || live.stage != Stage::kBound || live.turn->to == *live.mode) {
    return Violated(6, epoch, "has a turn that does not fit its stage or mode");
  }
  const std::vector<bool>& answered = live.turn->answered;
  const bool all = std::find(answered.begin(), answered.end(), false) == answered.end();
  if (all || answered.size() != live.members.size() || live.turn->number != live.turns) {
    return Violated(6, epoch, "has a turn that is over");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
