#include "scheduler/orchestrator/groups/group_control.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

std::string_view NameOf(Formation formation) {
  switch (formation) {
    case Formation::kIndependent:
      return "independent";
  }
  return "unknown";
}

GroupControl::Key GroupControl::KeyOf(const Instance& instance) {
  const WorkerIdentity& identity = instance.identity;
  return {.role = identity.role,
          .model = identity.model,
          .node = identity.node,
          .alone = identity.node.empty() ? instance.id : InstanceId{}};
}

void GroupControl::Came(const Instance& instance, TimeUs now) {
  const auto [known, is_new] = key_of_.try_emplace(instance.id, KeyOf(instance));
  if (!is_new) return;
  const auto [it, began] = groups_.try_emplace(known->second);
  Group& group = it->second;
  group.members.insert(instance.id);
  if (!began) return;
  group.since_us = now;
  group.why = "a new group starts with instances that work alone";
}

void GroupControl::Left(InstanceId instance) {
  const auto key = key_of_.extract(instance);
  if (key.empty()) return;
  const auto group = groups_.find(key.mapped());
  group->second.members.erase(instance);
  if (group->second.members.empty()) groups_.erase(group);
}

const GroupControl::Group* GroupControl::GroupOf(InstanceId instance) const {
  const auto key = key_of_.find(instance);
  return key == key_of_.end() ? nullptr : &groups_.at(key->second);
}

absl::Status GroupControl::CheckInvariants(const Registry& registry) const {
  const auto violated = [](InstanceId id, const char* what) {
    return absl::InternalError(absl::StrCat("GroupControl: instance ", id.value, " ", what));
  };
  size_t members = 0;
  for (const auto& [key, group] : groups_) {
    if (group.members.empty()) return absl::InternalError("GroupControl: an empty group was kept");
    members += group.members.size();
    for (const InstanceId id : group.members) {
      const Instance* instance = registry.Find(id);
      if (instance == nullptr) return violated(id, "is in a group, but not registered");
      if (KeyOf(*instance) != key) return violated(id, "is in a group with another key");
      if (GroupOf(id) != &group) return violated(id, "is not found by the group that lists it");
    }
  }
  if (members == registry.instances().size() && members == key_of_.size()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("GroupControl: ", members, " members of groups, ",
                                          registry.instances().size(), " instances"));
}

}  // namespace skein::scheduler::orchestrator
