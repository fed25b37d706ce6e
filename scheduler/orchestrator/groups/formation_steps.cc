#include "scheduler/orchestrator/groups/formation_steps.h"

#include <algorithm>
#include <optional>

namespace skein::scheduler::orchestrator {

namespace {

using Stage = FormationSwitch::Stage;

// Where the members stand in the order, if they are neighbours there.
std::optional<Subset> SubsetOf(const GroupOrder& order, const std::vector<InstanceId>& members) {
  for (size_t first = 0; first + members.size() <= order.members.size(); ++first) {
    const Subset subset = {static_cast<int32_t>(first), static_cast<int32_t>(members.size())};
    if (MembersOf(order, subset) == members) return subset;
  }
  return std::nullopt;
}

}  // namespace

std::vector<GroupLoad::Present> PresentIn(const FormationSwitch& formation,
                                          const std::map<uint64_t, BindReason>& reasons) {
  std::vector<GroupLoad::Present> present;
  for (const auto& [epoch, live] : formation.live()) {
    const std::optional<Subset> subset = SubsetOf(formation.order(), live.members);
    const auto reason = reasons.find(epoch);
    if (live.stage > Stage::kBound || !subset || reason == reasons.end() || live.mode) continue;
    present.push_back({.subset = *subset, .reason = reason->second, .epoch = epoch});
  }
  return present;
}

std::vector<Subset> SharedPresentIn(const FormationSwitch& formation) {
  std::vector<Subset> present;
  for (const auto& [epoch, live] : formation.live()) {
    const std::optional<Subset> subset = SubsetOf(formation.order(), live.members);
    if (live.stage <= Stage::kBound && live.mode && subset) present.push_back(*subset);
  }
  return present;
}

std::vector<ReleaseStep> ReleaseSteps(const FormationSwitch& formation,
                                      const std::vector<std::vector<InstanceId>>& chosen,
                                      const ReleaseHow& how) {
  std::vector<ReleaseStep> steps;
  for (const auto& [epoch, live] : formation.live()) {
    if (std::find(chosen.begin(), chosen.end(), live.members) != chosen.end()) continue;
    const Switch wanted = how(live);
    const bool hastens = live.stage == Stage::kReleasing && wanted == Switch::kHard &&
                         live.how == Switch::kSequential;
    if (live.stage >= Stage::kReleasing && !hastens) continue;
    steps.push_back({epoch, live.members.front(), wanted});
  }
  return steps;
}

bool IsFree(const FormationSwitch& formation, const std::vector<InstanceId>& members) {
  return std::all_of(members.begin(), members.end(),
                     [&](InstanceId member) { return formation.LiveOf(member) == nullptr; });
}

}  // namespace skein::scheduler::orchestrator
