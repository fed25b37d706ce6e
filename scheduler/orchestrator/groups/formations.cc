#include "scheduler/orchestrator/groups/formations.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/base/own_end_first.h"
#include "scheduler/orchestrator/groups/formation_steps.h"

namespace skein::scheduler::orchestrator {

namespace {

using Live = FormationSwitch::Live;
using Stage = FormationSwitch::Stage;

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
  FailBindsOf(*state, {instance},
              absl::AbortedError(absl::StrCat("instance ", instance.value, " has left its group")));
  Carry(*key, *state, std::move(effects), now);
  AnswerCalls(*state);
  if (parts_.groups->GroupOf(instance)->members.size() > 1) return;
  due_.Remove(*key);
  states_.erase(states_.find(*key));
}

void Formations::FellSilent(InstanceId instance, TimeUs now) {
  const Key* key = nullptr;
  State* state = Find(instance, &key);
  if (state == nullptr) return;
  SwitchEffects effects;
  state->formation.FellSilent(instance, now, &effects);
  if (!effects.empty()) Carry(*key, *state, std::move(effects), now);
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
  bool dedicated = false;
  bool operator==(const Marks&) const = default;
};

// Whether a member waits for its own sequences to end before it is bound, or has waited for that
// and takes nothing new until then.
bool WaitsForOwn(InstanceId instance, const Live& live) {
  const auto rank = std::find(live.members.begin(), live.members.end(), instance);
  if (live.stage >= Stage::kBound || rank == live.members.end()) return false;
  if (!OwnEndFirst(live.own, /*leads=*/rank == live.members.begin())) return false;
  const auto held = live.held[static_cast<size_t>(rank - live.members.begin())];
  return !OwnJoinGroup(live.own) || held == FormationSwitch::Held::kAsked;
}

Marks MarksOf(InstanceId instance, const Live* live, const BindReasons& reasons) {
  if (live == nullptr || live->mode) return {};  // it runs its own
  if (WaitsForOwn(instance, *live)) return {.closed = true};
  const bool leads = live->members.front() == instance;
  // While it is released the group takes nothing new, so each of its members does.
  if (live->stage == Stage::kPreparing || live->stage == Stage::kReleasing) return {};
  if (!leads) return {.closed = true};
  if (live->stage != Stage::kBound) return {};
  const auto reason = reasons.find(live->report.epoch);
  return {.leads = live->report.epoch,
          .size = live->subset.size,
          .dedicated = reason != reasons.end() && reason->second == BindReason::kPriority};
}

Marks MarksOf(const Instance& instance) {
  return {instance.closed_by_group, instance.leads_formation, instance.formation_size,
          instance.dedicated};
}

}  // namespace

void Formations::Mark(const Key& key, const State& state) {
  for (const InstanceId member : parts_.groups->all().at(key).members) {
    Instance* instance = parts_.registry->Find(member);  // null: it is leaving
    const Marks marks = MarksOf(member, state.formation.LiveOf(member), state.reasons);
    if (instance == nullptr || marks == MarksOf(*instance)) continue;
    instance->closed_by_group = marks.closed;
    instance->leads_formation = marks.leads;
    instance->formation_size = marks.size;
    instance->dedicated = marks.dedicated;
    parts_.registry->Recount(*instance);
    parts_.decode->NoteChange(key.model);
    parts_.needs->NoteChange(key.model);
  }
}

// ---- switches ----

void Formations::Carry(const Key& key, State& state, SwitchEffects effects, TimeUs now) {
  bool ended = false;
  NoteUnderWay(state.formation, state.reasons, state.ordered, parts_.switches);
  for (SwitchEffect& effect : effects) {
    if (auto* prepare = std::get_if<SendPrepare>(&effect)) {
      if (!prepare->order.shared) prepare->order.shift = ShiftOf(key, state, prepare->order);
      parts_.sender->Send(CallPrepareFormation{prepare->to, prepare->order});
    } else if (const auto* commit = std::get_if<SendCommit>(&effect)) {
      parts_.sender->Send(CallCommitFormation{commit->to, commit->order});
    } else if (const auto* end = std::get_if<SendEnd>(&effect)) {
      parts_.sender->Send(CallEndFormation{end->to, end->order});
    } else if (const auto* mode = std::get_if<SendMode>(&effect)) {
      parts_.sender->Send(CallMode{mode->to, mode->order});
    } else if (const auto* changed = std::get_if<ModeChanged>(&effect)) {
      NoteChanged(key, state, *changed, now);
    } else {
      NoteEnded(key, state, std::get<SwitchEnded>(effect), now);
      ended = true;
    }
  }
  due_.Set(key, state.formation.NextDeadline());
  Mark(key, state);
  if (ended) Drive(key, state, now);
}

// What the operator who pinned it has ordered; else what was measured.
std::optional<ShiftRule> Formations::ShiftOf(const Key& key, const State& state,
                                             const PrepareFormation& prepare) const {
  const auto live = state.formation.live().find(prepare.epoch);
  if (live != state.formation.live().end()) {
    const PinnedBind* pinned = state.pins.BoundAs(live->second.members);
    if (pinned != nullptr && pinned->shift) return pinned->shift;
  }
  const FormationProfile* profile = ProfileOf(key.model);
  if (profile == nullptr || !profile->shifts.contains(prepare.size)) return std::nullopt;
  return profile->shifts.at(prepare.size);
}

void Formations::NoteEnded(const Key& key, State& state, const SwitchEnded& ended, TimeUs now) {
  parts_.switches->NoteEnded(ended, CauseOf(ended, state.reasons, state.ordered), now);
  const bool binds = ended.to > 1;
  const bool done = ended.outcome == SwitchOutcome::kDone;
  const bool ordered = state.ordered.erase(ended.epoch) > 0;
  if (done || !binds) state.since_us = now;
  if (!done || !binds) state.reasons.erase(ended.epoch);
  if (!done || !binds) state.sharing.erase(ended.epoch);
  if (!binds && ordered) state.pause_us = kRetryMinUs;
  const bool failed = binds ? !done : ended.outcome == SwitchOutcome::kFailed;
  if (failed && !ordered) {
    state.failure = ended.reason;
    state.retry_us = now + state.pause_us;
    state.pause_us = std::min(2 * state.pause_us, kRetryMaxUs);
  }
  if (binds && !done) {
    FailCalls(state, absl::AbortedError(ended.reason),
              [&](const Call::Want& want) { return want.epoch == ended.epoch; });
  }
  NoteDone(state, ended);
  parts_.effects->push_back(FormationSwitched{parts_.groups->NameOf(key), ended});
}

// ---- what is to be bound ----

void Formations::Drive(const Key& key, State& state, TimeUs now) {
  const size_t calls = state.calls.size();
  std::vector<Target> targets = Choose(key, state, now);
  FailUnpinned(state);
  if (state.calls.size() != calls) targets = Choose(key, state, now);  // their pins are gone
  ReleaseOthers(key, state, targets, now);
  AnswerCalls(state);
  BindFree(key, state, targets, now);
  ChangeModes(key, state, now);
  AnswerCalls(state);
  Mark(key, state);  // the reasons may have changed
}

std::vector<Formations::Target> Formations::Choose(const Key& key, State& state, TimeUs now) {
  state.chosen_us = now;
  const GroupOrder& order = state.formation.order();
  GroupLoad load = LoadOf(key, state, now);
  if (HasUrgent(config_.policy, load)) state.urgent_us = now;
  load.urgent_us = state.urgent_us;
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
    const bool stands = live != nullptr && live->members == target.members && !live->mode;
    const absl::Status can = stands ? CanServe(target.members) : CanBind(key, target.members);
    if (stands) state.reasons[live->report.epoch] = bound.reason;
    if (can.ok()) {
      targets.push_back(std::move(target));
      continue;
    }
    state.choice.rejected.push_back({FormationName(bound.subset.size), std::string(can.message())});
    if (bound.reason == BindReason::kPin) FailBindsOf(state, target.members, can);
  }
  AddShared(key, state, &targets);
  return targets;
}

namespace {

// What one of these members is to be bound for, with others.
template <class Target>
std::optional<BindReason> NeedFor(const std::vector<InstanceId>& members,
                                  const std::vector<Target>& targets) {
  for (const Target& target : targets) {
    const auto shared = std::find_first_of(target.members.begin(), target.members.end(),
                                           members.begin(), members.end());
    if (shared != target.members.end()) return target.reason;
  }
  return std::nullopt;
}

}  // namespace

void Formations::ReleaseOthers(const Key& key, State& state, const std::vector<Target>& targets,
                               TimeUs now) {
  std::vector<std::vector<InstanceId>> chosen;
  for (const Target& target : targets) {
    const Live* live = state.formation.LiveOf(target.members.front());
    const bool otherwise = live != nullptr && live->mode.has_value() != target.shares;
    if (!otherwise) chosen.push_back(target.members);
  }
  std::vector<std::pair<ReleaseStep, std::string>> steps;
  const auto how = [&](const Live& live) { return HowOf(key, state, live); };
  for (const ReleaseStep& step : ReleaseSteps(state.formation, chosen, how)) {
    const std::vector<InstanceId>& members = state.formation.live().at(step.epoch).members;
    const absl::Status serve = CanServe(members);
    const bool pinned = std::any_of(members.begin(), members.end(),
                                    [&](InstanceId member) { return state.pins.Has(member); });
    // The policy does not see all that runs one: after a member has left, what is bound may be at
    // places of the order that cannot be bound.
    const bool runs_long = parts_.needs->LongestIn(key, step.epoch) > 0;
    if (runs_long && serve.ok() && !pinned) continue;
    const bool ordered = serve.ok() && state.pins.Has(step.lead);
    steps.emplace_back(step, !serve.ok() ? std::string(serve.message())
                             : ordered   ? "ordered by an operator"
                                         : state.choice.why);
    state.ordered[step.epoch] =
        !serve.ok() ? SwitchCause::kMember
        : ordered || !config_.automatic
            ? SwitchCause::kOperator
            : CauseOfRelease(step.epoch, state.reasons, NeedFor(members, targets));
  }
  for (const auto& [step, why] : steps) {
    SwitchEffects effects;
    const absl::Status ok = state.formation.Release(step.lead, step.how, why, now, &effects);
    if (ok.ok()) Carry(key, state, std::move(effects), now);
  }
}

// As the operator who pinned it has ordered, however often it is bound; else as configured. Long
// own sequences may keep a bind for a priority from ever coming about, so its next try does not
// wait for them.
OwnSequences Formations::OwnOf(const State& state, const Target& target) const {
  if (const PinnedBind* pinned = state.pins.BoundAs(target.members)) return pinned->own;
  const OwnSequences own = config_.OwnFor(target.reason);
  const bool failed = state.pause_us > kRetryMinUs;
  const bool waits = OwnEndFirst(own, /*leads=*/false);
  if (target.reason != BindReason::kPriority || !failed || !waits) return own;
  return OwnSequences::kHardPreempt;
}

void Formations::BindFree(const Key& key, State& state, const std::vector<Target>& targets,
                          TimeUs now) {
  for (const Target& target : targets) {
    std::vector<Call::Want*> wants;
    for (Call& call : state.calls) {
      for (Call::Want& want : call.wants) {
        const bool same = want.bound && want.shares == target.shares;
        if (same && want.members == target.members) wants.push_back(&want);
      }
    }
    if (!IsFree(state.formation, target.members)) continue;
    if (now < state.retry_us && wants.empty()) continue;
    SwitchEffects effects;
    const absl::StatusOr<uint64_t> epoch =
        target.shares
            ? state.formation.Share(target.subset, FirstMode(key, state, target).mode, target.why,
                                    now, &effects)
            : state.formation.Bind(target.subset, target.why, now, &effects, OwnOf(state, target));
    if (epoch.ok()) {
      state.reasons[*epoch] = target.reason;
      for (Call::Want* want : wants) want->epoch = *epoch;
      Carry(key, state, std::move(effects), now);
      continue;
    }
    state.choice.rejected.push_back({target.shares ? "shared" : FormationName(target.subset.size),
                                     std::string(epoch.status().message())});
    FailBindsOf(state, target.members, epoch.status());
  }
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
      const Marks marks = MarksOf(member, state.formation.LiveOf(member), state.reasons);
      if (marks == MarksOf(instance)) continue;
      return absl::InternalError(
          absl::StrCat("Formations: instance ", member.value, " is not marked as it is bound"));
    }
    for (const auto& [epoch, sharing] : state.sharing) {
      const auto live = state.formation.live().find(epoch);
      if (live == state.formation.live().end() || !live->second.mode) {
        return absl::InternalError(absl::StrCat("Formations: epoch ", epoch, " shares nothing"));
      }
      if (absl::Status ok = sharing.policy.CheckInvariants(); !ok.ok()) return ok;
    }
    for (const auto& [epoch, cause] : state.ordered) {
      if (state.formation.live().contains(epoch)) continue;
      return absl::InternalError(absl::StrCat("Formations: epoch ", epoch, " has ended"));
    }
    for (const Call& call : state.calls) {
      if (!call.wants.empty()) continue;
      return absl::InternalError("Formations: an order that is carried out was not answered");
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
