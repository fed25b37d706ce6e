// Instances that share their weights (Formations): which can, for what, and in which mode.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/groups/formation_steps.h"
#include "scheduler/orchestrator/groups/formations.h"

namespace skein::scheduler::orchestrator {

namespace {

using Live = FormationSwitch::Live;
using Stage = FormationSwitch::Stage;

}  // namespace

void Formations::On(const OfflineQueued& event, TimeUs now) {
  if (event.lines > 0) {
    offline_[event.model] = event.lines;
  } else {
    offline_.erase(event.model);
  }
  for (auto& [key, state] : states_) {
    if (key.model == event.model && now >= state.chosen_us + kChooseUs) Drive(key, state, now);
  }
}

void Formations::On(const ModeReported& event, TimeUs now) {
  parts_.registry->Heard(event.instance, now);
  const Key* key = nullptr;
  State* state = Find(event.instance, &key);
  if (state == nullptr) return;
  SwitchEffects effects;
  state->formation.Take(event.instance, event.told, now, &effects);
  Carry(*key, *state, std::move(effects), now);
}

// ---- which can ----

absl::Status Formations::CanShare(const Key& key, const State& state,
                                  const std::vector<InstanceId>& members) const {
  if (absl::Status serve = CanServe(members); !serve.ok()) return serve;
  const GroupControl::Group& group = parts_.groups->all().at(key);
  for (const InstanceId member : members) {
    const Instance& instance = *parts_.registry->Find(member);
    if (!instance.identity.shares_weights) {
      return absl::FailedPreconditionError(
          absl::StrCat("instance ", member.value, " cannot share its weights: its engine ",
                       instance.identity.device_kind.empty()
                           ? ""
                           : absl::StrCat("on '", instance.identity.device_kind, "' "),
                       "does not do it"));
    }
    if (!group.ready.contains(member)) {
      return absl::FailedPreconditionError(
          absl::StrCat("instance ", member.value, " has not made the group's communicators yet"));
    }
    const auto stray = state.formation.strays().find(member);
    if (stray == state.formation.strays().end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "instance ", member.value, " has not told the end of epoch ", stray->second.epoch));
  }
  return absl::OkStatus();
}

void Formations::AddOffline(const Key& key, const State& state, GroupLoad* load) const {
  load->shared = SharedPresentIn(state.formation);
  if (load->offline_lines == 0) return;  // nothing is chosen to share then
  const GroupOrder& order = state.formation.order();
  for (int32_t size = 2; IsBindable({0, size}, order.members.size()); size *= 2) {
    for (Subset subset{0, size}; IsBindable(subset, order.members.size()); subset.first += size) {
      const absl::Status can = CanShare(key, state, MembersOf(order, subset));
      if (!can.ok()) load->unshareable[subset] = std::string(can.message());
    }
  }
}

// What the policy has chosen, and what operators have pinned.
void Formations::AddShared(const Key& key, State& state, std::vector<Target>* targets) {
  const GroupOrder& order = state.formation.order();
  std::vector<FormationChoice::Bound> wanted = state.choice.shared;
  for (const Subset& pin : state.pins.SharedIn(order)) {
    if (!IsBindable(pin, order.members.size())) continue;
    wanted.push_back({pin, BindReason::kPin, "pinned by an operator"});
  }
  for (const FormationChoice::Bound& one : wanted) {
    Target target = {MembersOf(order, one.subset), one.subset, one.reason, one.why,
                     /*shares=*/true};
    const Live* live = state.formation.LiveOf(target.members.front());
    const bool stands = live != nullptr && live->members == target.members && live->mode;
    const absl::Status can =
        stands ? CanServe(target.members) : CanShare(key, state, target.members);
    if (stands) state.reasons[live->report.epoch] = one.reason;
    if (can.ok()) {
      targets->push_back(std::move(target));
      continue;
    }
    state.choice.rejected.push_back({"shared", std::string(can.message())});
    if (one.reason == BindReason::kPin) FailBindsOf(state, target.members, can);
  }
}

// ---- the mode ----

SharedModeConfig Formations::ModeConfigOf(const Key& key) const {
  SharedModeConfig config = config_.shared;
  const FormationProfile* profile = ProfileOf(key.model);
  if (profile != nullptr && profile->shared_batch_threshold) {
    config.threshold = profile->shared_batch_threshold;
  }
  return config;
}

// The sequences that each decodes now. One that is missed, or has no work, counts as 0.
std::vector<int64_t> Formations::BatchesOf(const std::vector<InstanceId>& members) const {
  std::vector<int64_t> batches;
  batches.reserve(members.size());
  for (const InstanceId member : members) {
    const Instance* instance = parts_.registry->Find(member);
    batches.push_back(instance == nullptr ? 0 : instance->load.running_requests);
  }
  return batches;
}

SharedModePolicy::Choice Formations::FirstMode(const Key& key, const State& state,
                                               const Target& target) const {
  const PinnedBind* pinned = state.pins.BoundAs(target.members);
  if (pinned != nullptr && pinned->mode) return {*pinned->mode, "ordered by an operator"};
  return SharedModePolicy(ModeConfigOf(key)).First(BatchesOf(target.members));
}

void Formations::ChangeModes(const Key& key, State& state, TimeUs now) {
  std::vector<std::pair<uint64_t, SharedModePolicy::Choice>> changes;
  for (const auto& [epoch, live] : state.formation.live()) {
    if (live.stage != Stage::kBound || !live.mode) continue;
    const auto [it, is_new] =
        state.sharing.try_emplace(epoch, State::Sharing{SharedModePolicy(ModeConfigOf(key)), ""});
    State::Sharing& sharing = it->second;
    if (is_new) sharing.policy.Began(*live.mode, now);
    if (live.turn) continue;
    const PinnedBind* pinned = state.pins.BoundAs(live.members);
    SharedModePolicy::Choice choice =
        pinned != nullptr && pinned->mode
            ? SharedModePolicy::Choice{*pinned->mode, "ordered by an operator"}
            : sharing.policy.Look(BatchesOf(live.members), now);
    sharing.why = choice.why;
    if (choice.mode == *live.mode || now < sharing.retry_us) continue;
    changes.emplace_back(epoch, std::move(choice));
  }
  for (auto& [epoch, choice] : changes) {
    SwitchEffects effects;
    const absl::Status ok =
        state.formation.SetMode(epoch, choice.mode, std::move(choice.why), now, &effects);
    if (ok.ok()) Carry(key, state, std::move(effects), now);
  }
}

void Formations::NoteChanged(const Key& key, State& state, const ModeChanged& changed, TimeUs now) {
  const auto sharing = state.sharing.find(changed.epoch);
  if (sharing != state.sharing.end()) {
    const bool done = changed.outcome == SwitchOutcome::kDone;
    sharing->second.policy.Began(done ? changed.to : changed.from, now);
    if (!done) sharing->second.retry_us = now + kModeRetryUs;
  }
  parts_.effects->push_back(SharedModeChanged{parts_.groups->NameOf(key), changed});
}

}  // namespace skein::scheduler::orchestrator
