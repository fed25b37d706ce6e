// What Formations shows of itself.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/groups/formations.h"

namespace skein::scheduler::orchestrator {

namespace {

using Live = FormationSwitch::Live;
using Stage = FormationSwitch::Stage;

std::string_view NameOf(Stage stage) {
  switch (stage) {
    case Stage::kPreparing:
    case Stage::kCommitting:
      return "binding";
    case Stage::kBound:
      return "stands";
    case Stage::kReleasing:
    case Stage::kEnding:
      return "releasing";
  }
  return "unknown";
}

}  // namespace

const Live* Formations::LiveOf(InstanceId instance) const {
  const Key* key = parts_.groups->KeyOf(instance);
  const auto it = key == nullptr ? states_.end() : states_.find(*key);
  return it == states_.end() ? nullptr : it->second.formation.LiveOf(instance);
}

Formations::Shown Formations::Show(const Key& key) const {
  const GroupControl::Group& group = parts_.groups->all().at(key);
  const auto it = states_.find(key);
  Shown shown;
  shown.since_us = it == states_.end() ? group.since_us : it->second.since_us;
  shown.why = key.role == Role::kPrefill ? "prefill instances share prompts by plan"
              : it == states_.end()      ? "its instances have made no communicators yet"
                                         : it->second.choice.why;
  if (it != states_.end()) shown.rejected = it->second.choice.rejected;
  std::set<uint64_t> seen;
  for (const InstanceId member : group.members) {
    const Live* live = LiveOf(member);
    const bool pinned = it != states_.end() && it->second.pins.Has(member);
    std::vector<Shown::One>& all = shown.formations;
    if (live == nullptr) {
      const bool joins = !all.empty() && all.back().epoch == 0 && all.back().pinned == pinned;
      if (!joins) all.push_back({{}, "stands", 0, {}, pinned, shown.since_us, shown.why});
      all.back().members.push_back(member);
    } else if (seen.insert(live->report.epoch).second) {
      std::vector<InstanceId> holders;  // the others have ended it
      std::copy_if(live->members.begin(), live->members.end(), std::back_inserter(holders),
                   [&](InstanceId one) { return LiveOf(one) == live; });
      std::string why = live->why;
      const auto sharing = it->second.sharing.find(live->report.epoch);
      if (sharing != it->second.sharing.end()) {
        absl::StrAppend(&why, "; ", ToString(*live->mode), ": ", sharing->second.why);
      }
      all.push_back({std::move(holders), NameOf(live->stage), live->report.epoch, live->mode,
                     pinned, live->since_us, std::move(why)});
    }
  }
  return shown;
}

}  // namespace skein::scheduler::orchestrator
