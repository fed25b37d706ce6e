// What requests want of a group, told to the policy, and whether the group can come to hold a long
// request (Formations).
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/orchestrator/groups/formations.h"

namespace skein::scheduler::orchestrator {

void Formations::AddNeeds(const Key& key, const State& state, TimeUs now, GroupLoad* load) const {
  load->longest_tokens = LongestThatCanBeServed(key, state, now);
  for (GroupLoad::Present& present : load->bound) {
    present.long_tokens = parts_.needs->LongestIn(key, present.epoch);
  }
  if (ServesUrgent(key)) load->highest_priority = parts_.requests->HighestPriorityOf(key.model);
}

// Of those that wait. One that the group cannot be bound for now, such as while an instance is
// restarted, keeps no shorter one waiting. If none can be served, the longest of all: the policy
// then says what keeps it.
int64_t Formations::LongestThatCanBeServed(const Key& key, const State& state, TimeUs now) const {
  const int64_t longest = parts_.needs->LongestWaiting(key);
  if (longest == 0) return 0;
  const GroupOrder& order = state.formation.order();
  int64_t most = 0;
  for (int32_t size = 2; IsBindable({0, size}, order.members.size()); size *= 2) {
    for (Subset subset{0, size}; IsBindable(subset, order.members.size()); subset.first += size) {
      const int64_t tokens = TokensIn(MembersOf(order, subset));
      if (tokens > most && MayBeBound(key, state, subset, now).ok()) most = tokens;
    }
  }
  const int64_t served = parts_.needs->LongestWaiting(key, most);
  return served > 0 ? served : longest;
}

// One group of a model is bound for its urgent requests: the one that is, else the first by name
// that can be.
bool Formations::ServesUrgent(const Key& key) const {
  const auto of_model = [&](const auto& one) {
    return one.first.role == Role::kDecode && one.first.model == key.model;
  };
  const auto is_bound = [&](const auto& one) {
    const auto is = [](const auto& reason) { return reason.second == BindReason::kPriority; };
    return of_model(one) && std::any_of(one.second.reasons.begin(), one.second.reasons.end(), is);
  };
  auto serves = std::find_if(states_.begin(), states_.end(), is_bound);
  if (serves == states_.end()) {
    serves = std::find_if(states_.begin(), states_.end(), [&](const auto& one) {
      return of_model(one) && CanServeUrgent(one.first, one.second);
    });
  }
  return serves != states_.end() && serves->first == key;
}

// Half of its members are enough to be bound, and some that are not pinned can be.
bool Formations::CanServeUrgent(const Key& key, const State& state) const {
  const GroupOrder& order = state.formation.order();
  const size_t members = order.members.size();
  if (members < 4) return false;
  const std::vector<Subset> pins = state.pins.In(order);
  for (Subset subset{0, 2}; IsBindable(subset, members); subset.first += 2) {
    const auto overlaps = [&](const Subset& pin) { return pin.Overlaps(subset); };
    if (std::any_of(pins.begin(), pins.end(), overlaps)) continue;
    if (MayBind(key, state, MembersOf(order, subset)).ok()) return true;
  }
  return false;
}

// UNAVAILABLE: all that stands and holds so many tokens has refused the request, and what stands
// and holds it is what the policy keeps for it.
absl::Status Formations::RefusedBy(const State& state, int64_t tokens,
                                   const std::set<uint64_t>& refused) const {
  absl::Status why;
  for (const auto& [epoch, live] : state.formation.live()) {
    if (live.stage > FormationSwitch::Stage::kBound || live.mode) continue;
    if (TokensIn(live.members) < tokens) continue;
    if (!refused.contains(epoch)) return absl::OkStatus();
    why = absl::UnavailableError(absl::StrCat(FormationName(live.subset.size), ", led by instance ",
                                              live.members.front().value, ", did not take it"));
  }
  return why;
}

absl::Status Formations::CanHold(const Key& key, int64_t tokens, const std::set<uint64_t>& refused,
                                 TimeUs now) const {
  const auto group = parts_.groups->all().find(key);
  if (group == parts_.groups->all().end()) {
    return absl::UnavailableError("the instances of the group have left");
  }
  if (group->second.members.size() < 2) {
    return absl::UnavailableError(
        absl::StrCat(parts_.groups->NameOf(key), " has one instance only"));
  }
  const auto it = states_.find(key);
  if (it == states_.end() || it->second.formation.order().members.size() < 2) {
    return absl::UnavailableError(
        absl::StrCat(parts_.groups->NameOf(key), " has made no communicators yet"));
  }
  const State& state = it->second;
  if (absl::Status by = RefusedBy(state, tokens, refused); !by.ok()) return by;
  std::optional<absl::Status> why;
  const size_t members = state.formation.order().members.size();
  for (int32_t size = 2; IsBindable({0, size}, members); size *= 2) {
    for (Subset subset{0, size}; IsBindable(subset, members); subset.first += size) {
      if (TokensIn(MembersOf(state.formation.order(), subset)) < tokens) continue;
      absl::Status can = MayBeBound(key, state, subset, now);
      if (can.ok()) return can;
      if (!why || absl::IsUnavailable(can)) why = std::move(can);  // what may pass tells more
    }
  }
  if (!why) {
    return absl::UnavailableError(
        absl::StrCat(parts_.groups->NameOf(key), " has too few instances now"));
  }
  if (absl::IsUnavailable(*why)) return *why;
  const size_t coming = ComingOf(key, state, now);
  if (!config_.automatic || !WouldHold(state, tokens, coming)) return *why;
  return absl::UnavailableError(absl::StrCat(why->message(), ", and ", coming,
                                             coming == 1 ? " instance is" : " instances are",
                                             " not back yet"));
}

// Instances that have left and may come back, and those that are back, but not in the order yet.
size_t Formations::ComingOf(const Key& key, const State& state, TimeUs now) const {
  auto coming = static_cast<size_t>(parts_.groups->AbsentOf(key, now));
  const std::vector<GroupMember>& ordered = state.formation.order().members;
  for (const InstanceId member : parts_.groups->all().at(key).members) {
    if (parts_.registry->Find(member)->identity.comm_address.empty()) continue;  // never in one
    const auto is = [&](const GroupMember& one) { return one.instance == member; };
    if (std::none_of(ordered.begin(), ordered.end(), is)) ++coming;
  }
  return coming;
}

// Whether pins leave enough members to hold it once so many instances have come. Those will be the
// last of the order.
bool Formations::WouldHold(const State& state, int64_t tokens, size_t coming) const {
  const GroupOrder& order = state.formation.order();
  const size_t now = order.members.size();
  const size_t members = now + coming;
  const std::vector<Subset> pins = state.pins.In(order);
  for (int32_t size = 2; IsBindable({0, size}, members); size *= 2) {
    const Instance* like = parts_.registry->Find(order.members.front().instance);
    if (like == nullptr || TokensMax(like->identity, size) < tokens) continue;
    for (Subset subset{0, size}; IsBindable(subset, members); subset.first += size) {
      const auto overlaps = [&](const Subset& pin) { return pin.Overlaps(subset); };
      const bool comes = static_cast<size_t>(subset.end()) > now;
      if (comes && std::none_of(pins.begin(), pins.end(), overlaps)) return true;
    }
  }
  return false;
}

std::vector<InstanceId> Formations::AwaitedFor(const Key& key, int64_t tokens, TimeUs now) const {
  const auto it = states_.find(key);
  if (it == states_.end()) return {};
  const State& state = it->second;
  const GroupOrder& order = state.formation.order();
  std::vector<InstanceId> awaited;
  size_t fewest = 0;
  for (int32_t size = 2; IsBindable({0, size}, order.members.size()); size *= 2) {
    for (Subset subset{0, size}; IsBindable(subset, order.members.size()); subset.first += size) {
      std::vector<InstanceId> members = MembersOf(order, subset);
      if (TokensIn(members) < tokens || !MayBeBound(key, state, subset, now).ok()) continue;
      const size_t running = LongRunningAt(key, state, members);
      if (!awaited.empty() && running >= fewest) continue;
      awaited = std::move(members);
      fewest = running;
    }
  }
  return awaited;
}

// In the formations of which one of them is a member.
size_t Formations::LongRunningAt(const Key& key, const State& state,
                                 const std::vector<InstanceId>& members) const {
  std::set<uint64_t> epochs;
  for (const InstanceId member : members) {
    const FormationSwitch::Live* live = state.formation.LiveOf(member);
    if (live != nullptr) epochs.insert(live->report.epoch);
  }
  size_t running = 0;
  for (const uint64_t epoch : epochs) running += parts_.needs->CountIn(key, epoch);
  return running;
}

// OK: it is bound, or nothing keeps the policy from binding it. UNAVAILABLE: what keeps it may
// pass. FAILED_PRECONDITION: operators do.
absl::Status Formations::MayBeBound(const Key& key, const State& state, const Subset& subset,
                                    TimeUs now) const {
  const std::vector<InstanceId> members = MembersOf(state.formation.order(), subset);
  const auto passing = [](const absl::Status& status) {
    return status.ok() ? status : absl::UnavailableError(status.message());
  };
  const std::vector<Subset> pins = state.pins.In(state.formation.order());
  const bool pinned = std::find(pins.begin(), pins.end(), subset) != pins.end();
  const auto overlaps = [&](const Subset& pin) { return pin.Overlaps(subset); };
  if (!pinned && std::any_of(pins.begin(), pins.end(), overlaps)) {
    return absl::FailedPreconditionError(
        absl::StrCat("instances of ", parts_.groups->NameOf(key), " are pinned by an operator"));
  }
  if (!pinned && !config_.automatic) {
    return absl::FailedPreconditionError("formations are ordered by hand (--formations=manual)");
  }
  const FormationSwitch::Live* live = state.formation.LiveOf(members.front());
  const bool stands = live != nullptr && live->members == members && !live->mode &&
                      live->stage <= FormationSwitch::Stage::kBound;
  if (stands) return passing(CanServe(members));
  if (absl::Status can = MayBind(key, state, members); !can.ok()) return passing(can);
  if (now >= state.retry_us) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the last bind of ", parts_.groups->NameOf(key), " failed: ", state.failure));
}

}  // namespace skein::scheduler::orchestrator
