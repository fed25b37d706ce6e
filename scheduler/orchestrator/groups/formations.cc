#include "scheduler/orchestrator/groups/formations.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/kv/handoff_shape.h"

namespace skein::scheduler::orchestrator {

namespace {

using Live = FormationSwitch::Live;
using Stage = FormationSwitch::Stage;

std::vector<InstanceId> MembersOf(const GroupOrder& order, const Subset& subset) {
  std::vector<InstanceId> members;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    members.push_back(order.members[static_cast<size_t>(i)].instance);
  }
  return members;
}

// Where the members stand in the order, if they are neighbours there.
std::optional<Subset> SubsetOf(const GroupOrder& order, const std::vector<InstanceId>& members) {
  for (size_t first = 0; first + members.size() <= order.members.size(); ++first) {
    const Subset subset = {static_cast<int32_t>(first), static_cast<int32_t>(members.size())};
    if (MembersOf(order, subset) == members) return subset;
  }
  return std::nullopt;
}

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

// ---- what happens to instances ----

Formations::State& Formations::StateOf(const Key& key, TimeUs now) {
  const auto [it, is_new] = states_.try_emplace(key, FormationSwitch(config_.limits, &epochs_));
  if (is_new) it->second.since_us = now;
  return it->second;
}

Formations::State* Formations::Find(InstanceId instance, const Key** key) {
  *key = parts_.groups->KeyOf(instance);
  const auto it = *key == nullptr ? states_.end() : states_.find(**key);
  return it == states_.end() ? nullptr : &it->second;
}

void Formations::Regrouped(InstanceId member, TimeUs now) {
  const Key key = *parts_.groups->KeyOf(member);
  State& state = StateOf(key, now);
  SwitchEffects effects;
  state.formation.Regrouped(parts_.groups->GroupOf(member)->order, now, &effects);
  state.pause_us = kRetryMinUs;
  state.retry_us = now;
  Carry(key, state, std::move(effects), now);
}

void Formations::Reconnected(InstanceId instance, const std::optional<FormationTold>& latest,
                             TimeUs now) {
  const Key* key = parts_.groups->KeyOf(instance);
  if (key == nullptr || key->role != Role::kDecode) return;
  if (!latest.has_value() && !states_.contains(*key)) return;
  State& state = StateOf(*key, now);
  SwitchEffects effects;
  state.formation.Reconnected(instance, latest, now, &effects);
  Carry(*key, state, std::move(effects), now);
}

void Formations::Reported(InstanceId instance, TimeUs now) {
  const Key* key = nullptr;
  State* state = Find(instance, &key);
  if (state != nullptr && now >= state->chosen_us + kChooseUs) Drive(*key, *state, now);
}

void Formations::Left(InstanceId instance, TimeUs now) {
  const Key* key = nullptr;
  State* state = Find(instance, &key);
  if (state == nullptr) return;
  SwitchEffects effects;
  state->formation.Left(instance, now, &effects);
  state->pins.Left(instance);
  FailCalls(*state, {instance},
            absl::AbortedError(absl::StrCat("instance ", instance.value, " has left its group")));
  Carry(*key, *state, std::move(effects), now);
  AnswerCalls(*state);
  if (parts_.groups->GroupOf(instance)->members.size() > 1) return;
  due_.Remove(*key);
  states_.erase(states_.find(*key));
}

void Formations::On(const FormationReported& event, TimeUs now) {
  parts_.registry->Heard(event.instance, now);
  const Key* key = parts_.groups->KeyOf(event.instance);
  if (key == nullptr) return;
  State& state = StateOf(*key, now);
  SwitchEffects effects;
  state.formation.Take(event.instance, event.told, now, &effects);
  Carry(*key, state, std::move(effects), now);
}

void Formations::Tick(TimeUs now) {
  while (const std::optional<Key> key = due_.TakeDue(now)) {
    State& state = states_.at(*key);
    SwitchEffects effects;
    state.formation.Tick(now, &effects);
    Carry(*key, state, std::move(effects), now);
  }
}

// ---- who gets requests ----

namespace {

struct Marks {
  bool closed = false;
  uint64_t leads = 0;
  int32_t size = 1;
  bool operator==(const Marks&) const = default;
};

Marks MarksOf(InstanceId instance, const Live* live) {
  if (live == nullptr || live->stage == Stage::kPreparing) return {};
  if (live->members.front() != instance) return {.closed = true};
  if (live->stage != Stage::kBound) return {};
  return {.leads = live->report.epoch, .size = live->subset.size};
}

Marks MarksOf(const Instance& instance) {
  return {instance.closed_by_group, instance.leads_formation, instance.formation_size};
}

}  // namespace

void Formations::Mark(const Key& key, const State& state) {
  for (const InstanceId member : parts_.groups->all().at(key).members) {
    Instance* instance = parts_.registry->Find(member);  // null: it is leaving
    const Marks marks = MarksOf(member, state.formation.LiveOf(member));
    if (instance == nullptr || marks == MarksOf(*instance)) continue;
    instance->closed_by_group = marks.closed;
    instance->leads_formation = marks.leads;
    instance->formation_size = marks.size;
    parts_.registry->Recount(*instance);
    parts_.decode->NoteChange(key.model);
  }
}

// ---- switches ----

void Formations::Carry(const Key& key, State& state, SwitchEffects effects, TimeUs now) {
  bool ended = false;
  for (SwitchEffect& effect : effects) {
    if (auto* prepare = std::get_if<SendPrepare>(&effect)) {
      const FormationProfile* profile = ProfileOf(key.model);
      if (profile != nullptr && profile->shift_tokens.contains(prepare->order.size)) {
        prepare->order.shift_tokens = profile->shift_tokens.at(prepare->order.size);
      }
      parts_.sender->Send(CallPrepareFormation{prepare->to, prepare->order});
    } else if (const auto* commit = std::get_if<SendCommit>(&effect)) {
      parts_.sender->Send(CallCommitFormation{commit->to, commit->order});
    } else if (const auto* end = std::get_if<SendEnd>(&effect)) {
      parts_.sender->Send(CallEndFormation{end->to, end->order});
    } else {
      NoteEnded(key, state, std::get<SwitchEnded>(effect), now);
      ended = true;
    }
  }
  due_.Set(key, state.formation.NextDeadline());
  Mark(key, state);
  if (ended) Drive(key, state, now);
}

void Formations::NoteEnded(const Key& key, State& state, const SwitchEnded& ended, TimeUs now) {
  const bool binds = ended.to > 1;
  const bool done = ended.outcome == SwitchOutcome::kDone;
  if (done || !binds) state.since_us = now;
  if (!done || !binds) state.reasons.erase(ended.epoch);
  if (binds && done) state.pause_us = kRetryMinUs;
  if (binds && !done) {
    state.retry_us = now + state.pause_us;
    state.pause_us = std::min(2 * state.pause_us, kRetryMaxUs);
    FailCalls(state, ended.members, absl::AbortedError(ended.reason));
  }
  NoteDone(state, ended);
  parts_.effects->push_back(FormationSwitched{parts_.groups->NameOf(key), ended});
}

// ---- what is to be bound ----

void Formations::Drive(const Key& key, State& state, TimeUs now) {
  const std::vector<Target> targets = Choose(key, state, now);
  ReleaseOthers(key, state, targets, now);
  BindFree(key, state, targets, now);
  AnswerCalls(state);
}

std::vector<Formations::Target> Formations::Choose(const Key& key, State& state, TimeUs now) {
  state.chosen_us = now;
  const GroupOrder& order = state.formation.order();
  const GroupLoad load = LoadOf(key, state);
  state.choice = {};
  std::vector<Target> targets;
  if (config_.automatic) {
    state.choice = ChooseFormation(config_.policy, load, now);
  } else {
    state.choice.why = "formations are ordered by hand (--formations=manual)";
    for (const Subset& pin : load.pinned) {
      if (!IsBindable(pin, order.members.size())) continue;
      state.choice.bound.push_back({pin, BindReason::kPin, "pinned by an operator"});
    }
  }
  for (const FormationChoice::Bound& bound : state.choice.bound) {
    Target target = {MembersOf(order, bound.subset), bound.subset, bound.reason, bound.why};
    const Live* live = state.formation.LiveOf(target.members.front());
    const bool stands = live != nullptr && live->members == target.members;
    const absl::Status can = stands ? CanServe(target.members) : CanBind(key, target.members);
    if (can.ok()) {
      targets.push_back(std::move(target));
      continue;
    }
    state.choice.rejected.push_back({FormationName(bound.subset.size), std::string(can.message())});
    if (bound.reason == BindReason::kPin) FailCalls(state, target.members, can);
  }
  return targets;
}

void Formations::ReleaseOthers(const Key& key, State& state, const std::vector<Target>& targets,
                               TimeUs now) {
  std::vector<std::pair<InstanceId, Switch>> released;  // by their lead
  for (const auto& [epoch, live] : state.formation.live()) {
    const auto is_this = [&live = live](const Target& target) {
      return target.members == live.members;
    };
    if (std::any_of(targets.begin(), targets.end(), is_this)) continue;
    const Switch how = HowOf(state, live);
    const bool hastens =
        live.stage == Stage::kReleasing && how == Switch::kHard && live.how == Switch::kSequential;
    if (live.stage < Stage::kReleasing || hastens) released.emplace_back(live.members.front(), how);
  }
  for (const auto& [lead, how] : released) {
    SwitchEffects effects;
    const std::string why = state.pins.Has(lead) ? "ordered by an operator" : state.choice.why;
    const absl::Status ok = state.formation.Release(lead, how, why, now, &effects);
    if (ok.ok()) Carry(key, state, std::move(effects), now);
  }
}

void Formations::BindFree(const Key& key, State& state, const std::vector<Target>& targets,
                          TimeUs now) {
  for (const Target& target : targets) {
    const bool is_free =
        std::none_of(target.members.begin(), target.members.end(),
                     [&](InstanceId member) { return state.formation.LiveOf(member) != nullptr; });
    if (!is_free || (now < state.retry_us && target.reason != BindReason::kPin)) continue;
    SwitchEffects effects;
    const absl::StatusOr<uint64_t> epoch =
        state.formation.Bind(target.subset, target.why, now, &effects);
    if (epoch.ok()) {
      state.reasons[*epoch] = target.reason;
      Carry(key, state, std::move(effects), now);
      continue;
    }
    state.choice.rejected.push_back(
        {FormationName(target.subset.size), std::string(epoch.status().message())});
    FailCalls(state, target.members, epoch.status());
  }
}

// ---- what the policy is told ----

GroupLoad Formations::LoadOf(const Key& key, const State& state) const {
  const GroupOrder& order = state.formation.order();
  GroupLoad load;
  for (const GroupMember& member : order.members) {
    GroupLoad::Member& one = load.members.emplace_back();
    const Instance* instance = parts_.registry->Find(member.instance);
    if (instance == nullptr) continue;
    one.running_sequences = instance->load.running_requests + instance->load.queued_requests +
                            instance->unreported.requests;
    one.running_tokens = instance->load.held_blocks * TokensPerBlock(instance->identity.shape);
  }
  const auto pool = static_cast<int64_t>(parts_.registry->Pool(key.model, Role::kDecode).size());
  const auto members = static_cast<int64_t>(order.members.size());
  const int64_t waiting = parts_.decode->WaitingOf(key.model);
  load.waiting_requests = pool == 0 ? 0 : (waiting * members + pool - 1) / pool;
  load.sizes = SizesOf(key, state);
  load.pinned = state.pins.In(order);
  for (const auto& [epoch, live] : state.formation.live()) {
    const std::optional<Subset> subset = SubsetOf(order, live.members);
    const auto reason = state.reasons.find(epoch);
    if (live.stage > Stage::kBound || !subset || reason == state.reasons.end()) continue;
    load.bound.push_back({*subset, reason->second});
  }
  load.since_us = state.since_us;
  return load;
}

std::vector<FormationSize> Formations::SizesOf(const Key& key, const State& state) const {
  const std::vector<GroupMember>& members = state.formation.order().members;
  const FormationProfile* profile = ProfileOf(key.model);
  std::vector<FormationSize> sizes;
  if (members.empty()) return sizes;
  const Instance* first = parts_.registry->Find(members.front().instance);
  if (first == nullptr) return sizes;
  const HandoffShape& shape = first->identity.shape;
  for (int32_t size = 1; size == 1 || IsBindable({0, size}, members.size()); size *= 2) {
    FormationSize& one = sizes.emplace_back();
    one.size = size;
    one.tokens_max = first->identity.total_blocks * skein::TokensPerBlock(KvLayout{size}, shape);
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

// ---- what is shown ----

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
  for (const InstanceId member : group.members) {
    const Live* live = LiveOf(member);
    const bool pinned = it != states_.end() && it->second.pins.Has(member);
    std::vector<Shown::One>& all = shown.formations;
    if (live == nullptr) {
      const bool joins = !all.empty() && all.back().epoch == 0 && all.back().pinned == pinned;
      if (!joins) all.push_back({{}, "stands", 0, pinned, shown.since_us, shown.why});
      all.back().members.push_back(member);
    } else if (live->members.front() == member) {
      all.push_back({live->members, NameOf(live->stage), live->report.epoch, pinned, live->since_us,
                     live->why});
    }
  }
  return shown;
}

absl::Status Formations::CheckInvariants() const {
  for (const auto& [key, state] : states_) {
    absl::Status found = state.formation.CheckInvariants();
    if (found.ok()) found = state.pins.CheckInvariants();
    if (!found.ok()) return found;
    const auto group = parts_.groups->all().find(key);
    if (group == parts_.groups->all().end()) {
      return absl::InternalError("Formations: a group without members was kept");
    }
    if (due_.Of(key) != state.formation.NextDeadline()) {
      return absl::InternalError("Formations: a deadline of a switch is not remembered");
    }
    for (const auto& [epoch, reason] : state.reasons) {
      if (state.formation.live().contains(epoch)) continue;
      return absl::InternalError(absl::StrCat("Formations: epoch ", epoch, " lives no more"));
    }
    for (const InstanceId member : group->second.members) {
      const Instance& instance = *parts_.registry->Find(member);
      if (MarksOf(member, state.formation.LiveOf(member)) == MarksOf(instance)) continue;
      return absl::InternalError(
          absl::StrCat("Formations: instance ", member.value, " is not marked as it is bound"));
    }
    for (const Call& call : state.calls) {
      if (!call.wants.empty()) continue;
      return absl::InternalError("Formations: an order that is carried out was not answered");
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
