#include "scheduler/orchestrator/groups/widest_groups.h"

#include <algorithm>

#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/groups/formation.h"
#include "scheduler/orchestrator/groups/formations.h"

namespace skein::scheduler::orchestrator {

bool WidestGroups::Note(const std::string& model, TimeUs now) {
  Seen& seen = seen_[model];
  const uint64_t walked = registry_->DrainVersion(model, Role::kDecode);
  const Widest widest = walked == seen.walked ? seen.widest : Now(model);
  std::erase_if(seen.former, [&](const Former& former) {
    return former.widest.tokens <= std::max(widest.tokens, seen.widest.tokens) ||
           now > former.until_us + groups_->kept_us();
  });
  if (seen.widest.tokens > widest.tokens) seen.former.push_back({seen.widest, now});
  seen.widest = widest;
  seen.walked = walked;
  const uint64_t version = registry_->PoolVersion(model, Role::kDecode);
  const bool changed = seen.version != version;
  seen.version = version;
  return changed;
}

WidestGroups::Widest WidestGroups::Of(const std::string& model, TimeUs now) const {
  const auto seen = seen_.find(model);
  if (seen == seen_.end()) return Now(model);
  const bool changed = seen->second.walked != registry_->DrainVersion(model, Role::kDecode);
  Widest widest = changed ? Now(model) : seen->second.widest;
  const auto take = [&](const Widest& one) {
    if (one.tokens > widest.tokens) widest = one;
  };
  take(seen->second.widest);
  for (const Former& former : seen->second.former) {
    if (now <= former.until_us + groups_->kept_us()) take(former.widest);
  }
  return widest;
}

WidestGroups::Widest WidestGroups::Now(const std::string& model) const {
  Widest widest = {.size = 1, .tokens = registry_->LargestSequence(model)};
  groups_->ForEachDecodeGroup(model, [&](const GroupControl::Key&,
                                         const GroupControl::Group& group) {
    SKEIN_LOOKED(group.members.size());
    std::vector<const Instance*> members;  // that make communicators
    for (const InstanceId id : group.members) {
      const Instance* member = registry_->Find(id);
      if (!member->identity.comm_address.empty()) members.push_back(member);
    }
    for (int32_t size = 2; IsBindable({0, size}, members.size()); size *= 2) {
      for (Subset subset{0, size}; IsBindable(subset, members.size()); subset.first += size) {
        const auto first = members.begin() + subset.first;
        const bool fits = std::all_of(first, first + size, [&](const Instance* one) {
          return one->identity.total_blocks == (*first)->identity.total_blocks && !one->draining();
        });
        const int64_t tokens = fits ? Formations::TokensMax((*first)->identity, size) : 0;
        if (tokens > widest.tokens) widest = {size, tokens};
      }
    }
  });
  return widest;
}

}  // namespace skein::scheduler::orchestrator
