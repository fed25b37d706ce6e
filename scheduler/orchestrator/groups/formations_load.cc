// What the policy is told of a group, and which of its members can be bound (Formations).
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/kv/handoff_shape.h"
#include "scheduler/orchestrator/groups/formation_steps.h"
#include "scheduler/orchestrator/groups/formations.h"

namespace skein::scheduler::orchestrator {

GroupLoad Formations::LoadOf(const Key& key, const State& state, TimeUs now) const {
  const GroupOrder& order = state.formation.order();
  GroupLoad load;
  for (const GroupMember& member : order.members) {
    GroupLoad::Member& one = load.members.emplace_back();
    const Instance* instance = parts_.registry->Find(member.instance);
    if (instance == nullptr) continue;
    one.serves = instance->Serves();
    one.running_sequences = instance->load.running_requests + instance->load.queued_requests +
                            instance->unreported.requests;
    one.running_tokens = instance->load.held_blocks * TokensPerBlock(instance->identity.shape);
    load.waiting_tokens += instance->load.queued_tokens + instance->unreported.prompt_tokens;
  }
  const auto pool = static_cast<int64_t>(parts_.registry->Pool(key.model, Role::kDecode).size());
  const auto members = static_cast<int64_t>(order.members.size());
  const auto share = [&](int64_t of_model) {
    return pool == 0 ? 0 : (of_model * members + pool - 1) / pool;
  };
  load.waiting_requests = share(parts_.decode->WaitingOf(key.model));
  const int32_t online = config_.policy.online_priority;
  load.online_requests = share(parts_.requests->CountFrom(key.model, online));
  load.offline_requests =
      share(parts_.requests->CountOf(key.model) - parts_.requests->CountFrom(key.model, online));
  load.online_waits = parts_.decode->SomeWaitFrom(key.model, online);
  const auto lines = offline_.find(key.model);
  load.offline_lines = lines == offline_.end() ? 0 : share(lines->second);
  load.sizes = SizesOf(key, state);
  load.pinned = state.pins.In(order);
  load.bound = PresentIn(state.formation, state.reasons);
  AddOffline(key, state, &load);
  load.since_us = state.since_us;
  AddLimits(key, state, &load);
  AddNeeds(key, state, now, &load);
  return load;
}

void Formations::AddLimits(const Key& key, const State& state, GroupLoad* load) const {
  const GroupOrder& order = state.formation.order();
  for (const FormationSize& size : load->sizes) {
    for (Subset subset{0, size.size}; IsBindable(subset, order.members.size());
         subset.first += size.size) {
      const std::vector<InstanceId> members = MembersOf(order, subset);
      const int64_t tokens = TokensIn(members);
      if (tokens != size.tokens_max) load->tokens_max[subset] = tokens;
      const FormationSwitch::Live* live = state.formation.LiveOf(members.front());
      if (live != nullptr && live->members == members && !live->mode) continue;
      if (absl::Status may = MayBind(key, state, members); !may.ok()) {
        load->blocked[subset] = std::string(may.message());
      }
    }
  }
}

int64_t Formations::TokensMax(const WorkerIdentity& identity, int32_t size) {
  const int64_t tokens =
      identity.total_blocks * skein::TokensPerBlock(KvLayout{size}, identity.shape);
  return identity.max_positions > 0 ? std::min(tokens, identity.max_positions) : tokens;
}

// Members that are bound together have as many blocks each. 0: the first has left.
int64_t Formations::TokensIn(const std::vector<InstanceId>& members) const {
  const Instance* first = parts_.registry->Find(members.front());
  return first == nullptr ? 0 : TokensMax(first->identity, static_cast<int32_t>(members.size()));
}

std::vector<FormationSize> Formations::SizesOf(const Key& key, const State& state) const {
  const std::vector<GroupMember>& members = state.formation.order().members;
  const FormationProfile* profile = ProfileOf(key.model);
  std::vector<FormationSize> sizes;
  if (members.empty()) return sizes;
  const Instance* first = nullptr;
  for (const GroupMember& member : members) {
    if (first == nullptr) first = parts_.registry->Find(member.instance);
  }
  if (first == nullptr) return sizes;
  for (int32_t size = 1; size == 1 || IsBindable({0, size}, members.size()); size *= 2) {
    FormationSize& one = sizes.emplace_back();
    one.size = size;
    one.tokens_max = TokensMax(first->identity, size);
    if (profile == nullptr || !profile->gains.contains(size)) continue;
    one.gain = profile->gains.at(size);
  }
  return sizes;
}

const FormationProfile* Formations::ProfileOf(const std::string& model) const {
  auto it = config_.profiles.find(model);
  if (it == config_.profiles.end()) it = config_.profiles.find("");
  return it == config_.profiles.end() ? nullptr : &it->second;
}

absl::Status Formations::CanServe(const std::vector<InstanceId>& members) const {
  for (const InstanceId member : members) {
    const Instance* instance = parts_.registry->Find(member);
    if (instance != nullptr && instance->Serves()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("instance ", member.value, " drains or is missed"));
  }
  return absl::OkStatus();
}

absl::Status Formations::CanBind(const Key& key, const std::vector<InstanceId>& members) const {
  if (absl::Status serve = CanServe(members); !serve.ok()) return serve;
  const GroupControl::Group& group = parts_.groups->all().at(key);
  const Instance& first = *parts_.registry->Find(members.front());
  for (const InstanceId member : members) {
    if (!group.ready.contains(member)) {
      return absl::FailedPreconditionError(
          absl::StrCat("instance ", member.value, " has not made the group's communicators yet"));
    }
    const int64_t blocks = parts_.registry->Find(member)->identity.total_blocks;
    if (blocks == first.identity.total_blocks) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "instances ", first.id.value, " and ", member.value, " have ", first.identity.total_blocks,
        " and ", blocks, " KV blocks: only instances with equally many are bound together"));
  }
  return absl::OkStatus();
}

// CanBind, and none of them may still hold an epoch that is known no more.
absl::Status Formations::MayBind(const Key& key, const State& state,
                                 const std::vector<InstanceId>& members) const {
  if (absl::Status can = CanBind(key, members); !can.ok()) return can;
  for (const InstanceId member : members) {
    const auto stray = state.formation.strays().find(member);
    if (stray == state.formation.strays().end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "instance ", member.value, " has not told the end of epoch ", stray->second.epoch));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
