#include "scheduler/orchestrator/groups/formation_switch.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/base/own_end_first.h"

namespace skein::scheduler::orchestrator {

namespace {

using Held = FormationSwitch::Held;
using Live = FormationSwitch::Live;
using Stage = FormationSwitch::Stage;

bool All(const Live& live, Held held) {
  return std::all_of(live.held.begin(), live.held.end(), [&](Held h) { return h == held; });
}

void Enter(Live& live, Stage stage, TimeUs now, TimeUs due_us) {
  live.stage = stage;
  live.since_us = now;
  live.due_us = due_us;
}

// A switch of the live epoch begins.
void BeginSwitch(uint64_t epoch, Live& live, int32_t to, std::string why, TimeUs now) {
  const int32_t size = live.subset.size;
  live.why = why;
  live.began_us = now;
  live.report = {.epoch = epoch,
                 .members = live.members,
                 .from = to == 1 ? size : 1,
                 .to = to,
                 .own = live.own,
                 .why = std::move(why),
                 .shared = live.mode};
}

void Report(const Live& live, TimeUs now, SwitchEffects* effects) {
  SwitchEnded report = live.report;
  report.shared = live.mode;
  report.took_us = std::max<TimeUs>(0, now - live.began_us);
  effects->push_back(std::move(report));
}

// "instances 3, 5": the members that `held` says so of.
std::string Who(const Live& live, bool (*still)(Held)) {
  std::vector<uint64_t> ids;
  for (size_t rank = 0; rank < live.members.size(); ++rank) {
    if (still(live.held[rank])) ids.push_back(live.members[rank].value);
  }
  return absl::StrCat(ids.size() == 1 ? "instance " : "instances ", absl::StrJoin(ids, ", "));
}

SendEnd EndOf(InstanceId to, uint64_t epoch, Switch how, const std::string& why) {
  return {to, {.epoch = epoch, .how = how, .why = absl::CancelledError(why)}};
}

}  // namespace

std::string_view NameOf(SwitchOutcome outcome) {
  switch (outcome) {
    case SwitchOutcome::kDone:
      return "done";
    case SwitchOutcome::kAborted:
      return "aborted";
    case SwitchOutcome::kForced:
      return "forced";
    case SwitchOutcome::kFailed:
      return "failed";
  }
  return "unknown";
}

FormationSwitch::FormationSwitch(const FormationLimits& limits, FormationEpochs* epochs)
    : limits_(limits), epochs_(epochs) {}

// ---- what is asked for ----

absl::StatusOr<uint64_t> FormationSwitch::Bind(const Subset& subset, std::string why, TimeUs now,
                                               SwitchEffects* effects, OwnSequences own) {
  return Begin(subset, {.own = own, .own_pause_us = limits_.own_pause_us}, std::move(why), now,
               effects);
}

absl::StatusOr<uint64_t> FormationSwitch::Share(const Subset& subset, SharedMode mode,
                                                std::string why, TimeUs now,
                                                SwitchEffects* effects) {
  return Begin(subset, {.shared = mode}, std::move(why), now, effects);
}

// Completes the order and sends it to all members.
absl::StatusOr<uint64_t> FormationSwitch::Begin(const Subset& subset, PrepareFormation order,
                                                std::string why, TimeUs now,
                                                SwitchEffects* effects) {
  if (order_.generation == 0) {
    return absl::FailedPreconditionError(
        "the group's instances have not been told to make communicators yet");
  }
  if (!IsBindable(subset, order_.members.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "members ", subset.first, " to ", subset.end() - 1, " of ", order_.members.size(),
        " cannot be bound: the size must be a power of 2, at least 2, and the first a multiple of "
        "it"));
  }
  if (absl::Status free = CheckFree(subset, order.shared); !free.ok()) return free;
  const uint64_t epoch = epochs_->Next();
  Live& live = live_[epoch];
  live.generation = order_.generation;
  live.subset = subset;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    live.members.push_back(order_.members[static_cast<size_t>(i)].instance);
  }
  live.held.assign(live.members.size(), Held::kAsked);
  live.own = order.own;
  live.mode = order.shared;
  BeginSwitch(epoch, live, subset.size, std::move(why), now);
  const bool drains = OwnEndFirst(order.own, /*leads=*/false);
  const TimeUs prepare_us = limits_.prepare_us + (drains ? limits_.release_us : 0);
  Enter(live, Stage::kPreparing, now, now + prepare_us);
  order.epoch = epoch;
  order.generation = live.generation;
  order.first = subset.first;
  order.size = subset.size;
  order.keep_us = prepare_us + limits_.commit_us;
  for (const InstanceId member : live.members) effects->push_back(SendPrepare{member, order});
  return epoch;
}

absl::Status FormationSwitch::Release(InstanceId member, Switch how, std::string why, TimeUs now,
                                      SwitchEffects* effects) {
  const LiveIt it = Find(member);
  if (it == live_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("instance ", member.value, " works alone: there is nothing to release"));
  }
  Live& live = it->second;
  if (live.stage == Stage::kPreparing || live.stage == Stage::kCommitting) {
    Fail(it, std::move(why), now, effects);
    return absl::OkStatus();
  }
  const bool hastens =
      live.stage == Stage::kReleasing && live.how == Switch::kSequential && how == Switch::kHard;
  if (live.stage != Stage::kBound && !hastens) return absl::FailedPreconditionError(HeldBy(member));
  if (live.turn) EndTurn(it, SwitchOutcome::kAborted, "the formation is released", now, effects);
  if (!hastens) BeginSwitch(it->first, live, 1, std::move(why), now);
  live.how = how;
  Enter(live, Stage::kReleasing, now,
        now + (how == Switch::kSequential ? limits_.release_us : EndUs(live)));
  for (size_t rank = 0; rank < live.members.size(); ++rank) {
    if (rank == 0 || live.held[rank] != Held::kNothing) SendAgain(it, rank, effects);
  }
  return absl::OkStatus();
}

// ---- what instances tell ----

void FormationSwitch::Take(InstanceId instance, const FormationTold& told, TimeUs now,
                           SwitchEffects* effects) {
  const LiveIt it = live_.find(told.epoch);
  if (it != live_.end()) {
    if (const auto rank = it->second.RankOf(instance)) return Note(it, *rank, told, now, effects);
  }
  NoteStray(instance, told, now, effects);
}

// Tells of one epoch only advance: what is behind is ignored.
void FormationSwitch::Note(LiveIt it, size_t rank, const FormationTold& told, TimeUs now,
                           SwitchEffects* effects) {
  Live& live = it->second;
  live.report.cut_over_us = std::max(live.report.cut_over_us, told.cut_over_us);
  live.report.drain_us = std::max(live.report.drain_us, told.drain_us);
  Held& held = live.held[rank];
  const uint64_t id = live.members[rank].value;
  switch (told.phase) {
    case FormationTold::Phase::kPrepared:
      if (held == Held::kAsked) held = Held::kPrepared;
      if (live.stage == Stage::kPreparing && All(live, Held::kPrepared)) Commit(it, now, effects);
      return;
    case FormationTold::Phase::kBound:
      held = Held::kBound;
      if (live.stage == Stage::kPreparing) {
        return Fail(it, absl::StrCat("instance ", id, " is bound before it may"), now, effects);
      }
      if (live.stage == Stage::kCommitting && All(live, Held::kBound)) Complete(it, now, effects);
      return;
    case FormationTold::Phase::kEnded:
      const std::string reason = absl::StrCat("instance ", id, " ended it: ", told.why.message());
      return NoteEnded(it, rank, reason, now, effects);
  }
}

void FormationSwitch::NoteEnded(LiveIt it, size_t rank, std::string reason, TimeUs now,
                                SwitchEffects* effects) {
  Live& live = it->second;
  live.held[rank] = Held::kNothing;
  // One has ended as it was told; the others follow, unless each lets its own sequences end.
  if (live.stage == Stage::kReleasing && !live.mode) {
    live.due_us = std::min(live.due_us, now + limits_.end_us);
  }
  if (live.stage < Stage::kReleasing) return Fail(it, std::move(reason), now, effects);
  ForgetIfEnded(it, now, effects);
}

// The instance told of an epoch of which it is no member here.
void FormationSwitch::NoteStray(InstanceId instance, const FormationTold& told, TimeUs now,
                                SwitchEffects* effects) {
  const auto known = strays_.find(instance);
  const bool is_known = known != strays_.end() && known->second.epoch == told.epoch;
  if (told.phase == FormationTold::Phase::kEnded) {
    if (is_known) strays_.erase(known);
    return;
  }
  if (is_known) return;  // it has been told to end it
  // It holds one epoch at most, so not the one that it was asked to prepare here.
  if (const LiveIt it = Find(instance); it != live_.end()) {
    const std::string reason =
        absl::StrCat("instance ", instance.value, " holds epoch ", told.epoch);
    NoteEnded(it, *it->second.RankOf(instance), reason, now, effects);
  }
  strays_[instance] = {told.epoch, now + limits_.release_us};
  effects->push_back(EndOf(instance, told.epoch, Switch::kSequential,
                           "the orchestrator does not know this epoch"));
}

void FormationSwitch::Reconnected(InstanceId instance, const std::optional<FormationTold>& latest,
                                  TimeUs now, SwitchEffects* effects) {
  strays_.erase(instance);  // what it tells now holds
  const LiveIt it = Find(instance);
  const bool same = it != live_.end() && latest && latest->epoch == it->first;
  if (it == live_.end() || !same) {
    if (it != live_.end()) {
      const std::string reason =
          absl::StrCat("instance ", instance.value, " came back without epoch ", it->first);
      NoteEnded(it, *it->second.RankOf(instance), reason, now, effects);
    }
    if (latest) Take(instance, *latest, now, effects);
    return;
  }
  const size_t rank = *it->second.RankOf(instance);
  const bool is_prepared = latest->phase == FormationTold::Phase::kPrepared;
  const bool awaited = it->second.stage == Stage::kCommitting && is_prepared;
  if (awaited && rank == 0 && !it->second.mode) {
    return Fail(it, "the lead came back, and may not have been told to commit", now, effects);
  }
  if (latest->phase != FormationTold::Phase::kEnded) SendAgain(it, rank, effects);
  Note(it, rank, *latest, now, effects);
}

// The order to end, to a member that may not have got it. Of shared weights also the order to
// enter, and that to change the mode. Nothing else is sent again.
void FormationSwitch::SendAgain(LiveIt it, size_t rank, SwitchEffects* effects) const {
  const Live& live = it->second;
  const InstanceId member = live.members[rank];
  if (live.stage == Stage::kEnding) {
    effects->push_back(EndOf(member, it->first, Switch::kHard, live.report.reason));
  } else if (live.stage == Stage::kReleasing && (rank == 0 || live.mode)) {
    effects->push_back(EndOf(member, it->first, live.how, live.why));
  } else if (live.stage == Stage::kCommitting && live.mode) {
    effects->push_back(SendCommit{member, {.epoch = it->first}});
  } else if (live.turn && !live.turn->answered[rank]) {
    SendTurn(it, rank, effects);
  }
}

// ---- members that come and go ----

void FormationSwitch::Left(InstanceId instance, TimeUs now, SwitchEffects* effects) {
  strays_.erase(instance);
  for (const GroupMember& member : order_.members) {
    if (member.instance == instance) left_.insert(instance);
  }
  const LiveIt it = Find(instance);
  if (it == live_.end()) return;
  it->second.held[*it->second.RankOf(instance)] = Held::kNothing;
  Fail(it, absl::StrCat("instance ", instance.value, " left"), now, effects);
}

void FormationSwitch::FellSilent(InstanceId instance, TimeUs now, SwitchEffects* effects) {
  const LiveIt it = Find(instance);
  if (it == live_.end() || it->second.mode || it->second.stage == Stage::kEnding) return;
  Fail(it, absl::StrCat("instance ", instance.value, " says nothing"), now, effects);
}

void FormationSwitch::Regrouped(const GroupOrder& order, TimeUs now, SwitchEffects* effects) {
  if (order.generation <= order_.generation) return;
  const auto same = [](const GroupMember& a, const GroupMember& b) {
    return a.instance == b.instance;
  };
  const bool regrouped = !std::equal(order_.members.begin(), order_.members.end(),
                                     order.members.begin(), order.members.end(), same);
  order_ = order;
  std::erase_if(left_, [&](InstanceId id) {
    return std::none_of(order_.members.begin(), order_.members.end(),
                        [&](const GroupMember& member) { return member.instance == id; });
  });
  for (LiveIt it = live_.begin(); it != live_.end();) {
    const LiveIt next = std::next(it);
    if (it->second.stage == Stage::kPreparing) {
      Fail(it, regrouped ? "the group has other members" : "the group makes new communicators", now,
           effects);
    }
    it = next;
  }
}

// ---- stages ----

void FormationSwitch::Commit(LiveIt it, TimeUs now, SwitchEffects* effects) {
  Live& live = it->second;
  Enter(live, Stage::kCommitting, now, now + limits_.commit_us);
  for (const InstanceId member : live.members) {
    effects->push_back(SendCommit{member, {.epoch = it->first}});
    if (!live.mode) return;  // the lead's first step binds the others
  }
}

void FormationSwitch::Complete(LiveIt it, TimeUs now, SwitchEffects* effects) {
  Enter(it->second, Stage::kBound, now, kNever);
  Report(it->second, now, effects);
}

// The switch cannot be done, or the bound group not go on. No effect on what is ending already.
void FormationSwitch::Fail(LiveIt it, std::string reason, TimeUs now, SwitchEffects* effects) {
  Live& live = it->second;
  if (live.stage == Stage::kEnding) return ForgetIfEnded(it, now, effects);
  const bool binds = live.stage < Stage::kBound;
  if (live.turn) EndTurn(it, SwitchOutcome::kFailed, reason, now, effects);
  if (live.stage == Stage::kBound) BeginSwitch(it->first, live, 1, reason, now);
  live.report.outcome = binds ? SwitchOutcome::kAborted : SwitchOutcome::kFailed;
  live.report.reason = std::move(reason);
  EndEverywhere(it, now, effects);
  ForgetIfEnded(it, now, effects);
}

void FormationSwitch::EndEverywhere(LiveIt it, TimeUs now, SwitchEffects* effects) {
  Live& live = it->second;
  Enter(live, Stage::kEnding, now, now + EndUs(live));
  live.why = live.report.reason;
  for (size_t rank = 0; rank < live.members.size(); ++rank) {
    if (live.held[rank] != Held::kNothing) SendAgain(it, rank, effects);
  }
}

void FormationSwitch::ForgetIfEnded(LiveIt it, TimeUs now, SwitchEffects* effects) {
  if (All(it->second, Held::kNothing)) Forget(it, now, effects);
}

// Members that may still hold the epoch are strays from now on.
void FormationSwitch::Forget(LiveIt it, TimeUs now, SwitchEffects* effects) {
  Live& live = it->second;
  for (size_t rank = 0; rank < live.members.size(); ++rank) {
    if (live.held[rank] == Held::kNothing) continue;
    live.report.unanswered.push_back(live.members[rank]);
    strays_[live.members[rank]] = {it->first, now + limits_.end_us};
  }
  Report(live, now, effects);
  live_.erase(it);
}

// ---- time ----

void FormationSwitch::Tick(TimeUs now, SwitchEffects* effects) {
  for (LiveIt it = live_.begin(); it != live_.end();) {
    const LiveIt next = std::next(it);
    if (it->second.due_us <= now) Expire(it, now, effects);
    it = next;
  }
  for (auto& [instance, stray] : strays_) {
    if (stray.due_us > now) continue;
    stray.due_us = now + limits_.end_us;
    effects->push_back(
        EndOf(instance, stray.epoch, Switch::kHard, "this epoch should have ended already"));
  }
}

void FormationSwitch::Expire(LiveIt it, TimeUs now, SwitchEffects* effects) {
  Live& live = it->second;
  const auto late = [&](bool (*still)(Held), const char* what) {
    return absl::StrCat(Who(live, still), what, (now - live.since_us) / kMillisecondUs, " ms");
  };
  switch (live.stage) {
    case Stage::kPreparing:
      return Fail(it, late([](Held h) { return h == Held::kAsked; }, " did not prepare within "),
                  now, effects);
    case Stage::kCommitting:
      return Fail(it, late([](Held h) { return h != Held::kBound; }, " was not bound within "), now,
                  effects);
    case Stage::kBound:
      return ExpireTurn(it, now, effects);
    case Stage::kReleasing:
      live.report.outcome = SwitchOutcome::kForced;
      live.report.reason =
          late([](Held h) { return h != Held::kNothing; }, " did not end the group within ");
      return EndEverywhere(it, now, effects);
    case Stage::kEnding:
      return Forget(it, now, effects);
  }
}

}  // namespace skein::scheduler::orchestrator
