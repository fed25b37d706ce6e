#include "scheduler/orchestrator/groups/group_control.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

namespace {

// Roles whose instances may be bound into a group.
bool MakesCommunicators(const GroupControl::Key& key) { return key.role == Role::kDecode; }

}  // namespace

GroupControl::Key GroupControl::KeyOf(const Instance& instance) {
  const WorkerIdentity& identity = instance.identity;
  return {.role = identity.role,
          .model = identity.model,
          .node = identity.node,
          .alone = identity.node.empty() ? instance.id : InstanceId{}};
}

void GroupControl::Came(const Instance& instance, TimeUs now,
                        const std::vector<InstanceId>& replaces) {
  for (const InstanceId former : replaces) {
    if (key_of_.contains(former)) replaced_.insert(former);
  }
  const auto [known, is_new] = key_of_.try_emplace(instance.id, KeyOf(instance));
  if (!is_new) return;
  const Key& own = known->second;
  const bool restarted = std::any_of(replaces.begin(), replaces.end(), [&](InstanceId former) {
    const Key* key = KeyOf(former);
    return key != nullptr && *key == own;
  });
  const auto comes_back = [&own](const auto& absent) { return absent.first == own; };
  const auto absent = std::find_if(absent_.begin(), absent_.end(), comes_back);
  if (!restarted && absent != absent_.end()) absent_.erase(absent);
  const auto [it, began] = groups_.try_emplace(own);
  Group& group = it->second;
  group.members.insert(instance.id);
  group.pause_us = kRetryMinUs;
  if (!instance.identity.comm_address.empty()) OrderAt(now + kSettleUs, own);
  if (began) group.since_us = now;
}

void GroupControl::Left(InstanceId instance, TimeUs now) {
  const auto known = key_of_.extract(instance);
  if (known.empty()) return;
  const auto it = groups_.find(known.mapped());
  auto& [key, group] = *it;
  const bool replaced = replaced_.erase(instance) > 0;
  if (!replaced && MakesCommunicators(key) && !key.node.empty()) absent_.emplace_back(key, now);
  if (absent_.size() > kAbsentMost) absent_.pop_front();
  group.members.erase(instance);
  group.ready.erase(instance);
  group.pause_us = kRetryMinUs;
  const bool stale = group.order.generation != 0 || due_.Of(key) != kNever;
  if (stale) OrderAt(group.members.empty() ? kNever : now + kSettleUs, key);
  if (group.members.empty()) groups_.erase(it);
}

void GroupControl::OrderAt(TimeUs at, const Key& key) {
  if (MakesCommunicators(key)) due_.Set(key, at);
}

void GroupControl::OrderAgain(TimeUs now) {
  for (auto& [key, group] : groups_) {
    if (group.order.generation != 0) OrderAt(now + kSettleUs, key);
  }
}

void GroupControl::Reported(InstanceId instance, const WorkerLoad& load, TimeUs now) {
  const auto key = key_of_.find(instance);
  if (key == key_of_.end()) return;
  Group& group = groups_.at(key->second);
  const uint64_t generation = group.order.generation;
  if (generation == 0) return;
  if (load.groups_failed == generation) {
    group.ready.erase(instance);
    if (due_.Of(key->second) != kNever) return;
    OrderAt(now + group.pause_us, key->second);
    group.pause_us = std::min(2 * group.pause_us, kRetryMaxUs);
  } else if (load.groups_made == generation) {
    group.ready.insert(instance);
    if (group.ready.size() == group.order.members.size()) group.pause_us = kRetryMinUs;
  }
}

std::vector<std::pair<InstanceId, GroupOrder>> GroupControl::TakeDue(const Registry& registry,
                                                                     uint64_t first, TimeUs now) {
  std::vector<std::pair<InstanceId, GroupOrder>> orders;
  while (const std::optional<Key> key = due_.TakeDue(now)) {
    Group& group = groups_.at(*key);
    std::vector<GroupMember> members;
    for (const InstanceId id : group.members) {
      const std::string& address = registry.Find(id)->identity.comm_address;
      if (!address.empty()) members.push_back({id, address});
    }
    // One alone makes none, but may have some that are of no use now.
    if (members.size() < 2 && group.order.members.size() < 2) {
      std::erase_if(group.order.members, [&group = group](const GroupMember& member) {
        return !group.members.contains(member.instance);
      });
      continue;
    }
    last_generation_ = std::max(last_generation_ + 1, first);
    group.order = {.generation = last_generation_, .index = 0, .members = std::move(members)};
    group.ready.clear();
    for (size_t i = 0; i < group.order.members.size(); ++i) {
      GroupOrder order = group.order;
      order.index = i;
      orders.emplace_back(group.order.members[i].instance, std::move(order));
    }
  }
  return orders;
}

GroupOrder GroupControl::OrderOf(InstanceId instance) const {
  const Group* group = GroupOf(instance);
  if (group == nullptr) return {};
  const std::vector<GroupMember>& members = group->order.members;
  const auto self = std::find_if(members.begin(), members.end(), [&](const GroupMember& member) {
    return member.instance == instance;
  });
  if (self == members.end()) return {};
  GroupOrder order = group->order;
  order.index = static_cast<size_t>(self - members.begin());
  return order;
}

int64_t GroupControl::AbsentOf(const Key& key, TimeUs now) const {
  return std::count_if(absent_.begin(), absent_.end(), [&](const auto& absent) {
    return absent.first == key && now <= absent.second + kept_us_;
  });
}

const GroupControl::Group* GroupControl::GroupOf(InstanceId instance) const {
  const auto key = key_of_.find(instance);
  return key == key_of_.end() ? nullptr : &groups_.at(key->second);
}

const GroupControl::Key* GroupControl::KeyOf(InstanceId instance) const {
  const auto key = key_of_.find(instance);
  return key == key_of_.end() ? nullptr : &key->second;
}

std::string GroupControl::NameOf(const Key& key) {
  const std::string node = key.node.empty() ? absl::StrCat("instance-", key.alone.value) : key.node;
  return absl::StrCat(key.model, "@", node, key.role == Role::kPrefill ? "/prefill" : "");
}

std::optional<GroupControl::Key> GroupControl::Named(std::string_view name) const {
  for (const auto& [key, group] : groups_) {
    if (NameOf(key) == name) return key;
  }
  return std::nullopt;
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
  if (members == registry.instances().size() && members == key_of_.size()) return CheckOrders();
  return absl::InternalError(absl::StrCat("GroupControl: ", members, " members of groups, ",
                                          registry.instances().size(), " instances"));
}

absl::Status GroupControl::CheckOrders() const {
  size_t due = 0;
  for (const auto& [key, group] : groups_) {
    const bool is_due = due_.Of(key) != kNever;
    due += is_due ? 1 : 0;
    for (const GroupMember& member : group.order.members) {
      if (is_due || group.members.contains(member.instance)) continue;
      return absl::InternalError(absl::StrCat("GroupControl: instance ", member.instance.value,
                                              " is in an order of a group that it has left"));
    }
  }
  if (due == due_.size()) return absl::OkStatus();
  return absl::InternalError("GroupControl: an order of no group is due");
}

}  // namespace skein::scheduler::orchestrator
