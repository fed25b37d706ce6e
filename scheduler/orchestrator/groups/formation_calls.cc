// The orders of operators (Formations).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/orchestrator/groups/formations.h"

namespace skein::scheduler::orchestrator {

namespace {

using Act = FormationOrder::Act;

std::string Listed(const std::vector<InstanceId>& instances) {
  return absl::StrCat(instances.size() == 1 ? "instance " : "instances ",
                      absl::StrJoin(instances, ", ", [](std::string* out, InstanceId instance) {
                        absl::StrAppend(out, instance.value);
                      }));
}

bool Overlap(const std::vector<InstanceId>& a, const std::vector<InstanceId>& b) {
  return std::any_of(a.begin(), a.end(), [&](InstanceId instance) {
    return std::find(b.begin(), b.end(), instance) != b.end();
  });
}

std::vector<std::vector<InstanceId>> SubsetsOfSize(const GroupOrder& order, int32_t size) {
  std::vector<std::vector<InstanceId>> subsets;
  for (Subset subset = {0, size}; IsBindable(subset, order.members.size()); subset.first += size) {
    subsets.push_back(MembersOf(order, subset));
  }
  return subsets;
}

// "1, 2 or 3, 4 or 1, 2, 3, 4": what can be bound together.
std::string Bindable(const GroupOrder& order) {
  std::vector<std::string> all;
  for (int32_t size = 2; IsBindable({0, size}, order.members.size()); size *= 2) {
    for (const std::vector<InstanceId>& one : SubsetsOfSize(order, size)) {
      all.push_back(absl::StrCat("(", Listed(one).substr(sizeof("instances")), ")"));
    }
  }
  return all.empty() ? "none" : absl::StrJoin(all, ", ");
}

std::string TookText(TimeUs took_us) {
  return absl::StrFormat("%.1f ms", static_cast<double>(took_us) / 1000);
}

}  // namespace

void Formations::On(const FormationCalled& event, TimeUs now) {
  const absl::StatusOr<Key> key = KeyOf(event.order);
  if (!key.ok()) {
    parts_.effects->push_back(AnswerFormation{event.call, key.status()});
    return;
  }
  State& state = StateOf(*key, now);
  Call call = {.id = event.call, .order = event.order, .wants = {}, .done = {}};
  if (absl::Status taken = Take(*key, state, &call); !taken.ok()) {
    parts_.effects->push_back(AnswerFormation{event.call, std::move(taken)});
    return;
  }
  for (const Call::Want& want : call.wants) {
    FailBindsOf(state, want.members, absl::AbortedError("another order took its place"));
  }
  Pin(*key, call, state);
  if (call.wants.empty()) {  // it concerns what stands
    parts_.effects->push_back(AnswerFormation{call.id, absl::OkStatus(), std::move(call.done)});
  } else {
    state.calls.push_back(std::move(call));
  }
  Drive(*key, state, now);
}

absl::StatusOr<Formations::Key> Formations::KeyOf(const FormationOrder& order) const {
  std::optional<Key> key;
  if (order.instances.empty()) {
    key = parts_.groups->Named(order.group);
    if (!key) return absl::NotFoundError(absl::StrCat("group: '", order.group, "' is unknown"));
  }
  for (const InstanceId instance : order.instances) {
    const Key* its = parts_.groups->KeyOf(instance);
    if (its == nullptr) {
      return absl::NotFoundError(absl::StrCat("instance ", instance.value, " is unknown"));
    }
    if (key && *key != *its) {
      return absl::InvalidArgumentError(
          absl::StrCat(Listed(order.instances), " are of different groups, ",
                       parts_.groups->NameOf(*key), " and ", parts_.groups->NameOf(*its)));
    }
    key = *its;
  }
  if (key->role == Role::kDecode) return *key;
  return absl::FailedPreconditionError(
      "prefill instances share prompts by plan, not by a formation");
}

// Fills `wants` with what has to come true, and `done` with what stands already.
absl::Status Formations::Take(const Key& key, State& state, Call* call) const {
  const FormationOrder& order = call->order;
  switch (order.act) {
    case Act::kBind:
    case Act::kShare:
      return TakeBind(state, call);
    case Act::kRelease:
      for (const auto& [epoch, live] : state.formation.live()) {
        if (!Overlap(live.members, Meant(key, state, order))) continue;
        call->wants.push_back({live.members, /*bound=*/false});
      }
      if (call->wants.empty()) {
        call->done.push_back(
            absl::StrCat(Listed(Meant(key, state, order)), ": independent already"));
      }
      return absl::OkStatus();
    case Act::kPin:
      call->done.push_back(absl::StrCat(Listed(Meant(key, state, order)), ": pinned as it is"));
      return absl::OkStatus();
    case Act::kUnpin:
      call->done.push_back(absl::StrCat(Listed(Meant(key, state, order)), ": not pinned; ",
                                        config_.automatic
                                            ? "the orchestrator decides from now on"
                                            : "what is bound is released (--formations=manual)"));
      return absl::OkStatus();
  }
  return absl::InternalError("an unknown order");
}

absl::Status Formations::TakeBind(const State& state, Call* call) const {
  const GroupOrder& order = state.formation.order();
  std::vector<std::vector<InstanceId>> wanted;
  if (!call->order.instances.empty()) {
    std::vector<InstanceId> members = call->order.instances;
    std::sort(members.begin(), members.end());
    const auto same = SubsetsOfSize(order, static_cast<int32_t>(members.size()));
    if (std::find(same.begin(), same.end(), members) == same.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          Listed(members), " cannot be bound together; of this group can: ", Bindable(order)));
    }
    wanted.push_back(std::move(members));
  } else {
    int32_t size = call->order.size;
    for (int32_t two = 2; call->order.size == 0 && IsBindable({0, two}, order.members.size());
         two *= 2) {
      size = two;
    }
    wanted = SubsetsOfSize(order, size);
    if (wanted.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "size: ", size, " of ", order.members.size(),
          " instances cannot be bound together; of this group can: ", Bindable(order)));
    }
  }
  const auto size = static_cast<int32_t>(wanted[0].size());  // of all of them
  const std::optional<ShiftRule>& shift = call->order.shift;
  if (shift.has_value() && !shift->Fits(size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shift_tp: ", shift->tp, " is not a power of two below the size ", size));
  }
  for (std::vector<InstanceId>& members : wanted) {
    call->wants.push_back(
        {std::move(members), /*bound=*/true, /*shares=*/call->order.act == Act::kShare});
  }
  return absl::OkStatus();
}

// The instances that an order names, with all that are bound with one of them.
std::vector<InstanceId> Formations::Meant(const Key& key, const State& state,
                                          const FormationOrder& order) const {
  std::set<InstanceId> meant(order.instances.begin(), order.instances.end());
  if (order.instances.empty()) {
    // Those of the group now: its order may be older, or there is none yet.
    meant = parts_.groups->all().at(key).members;
  }
  for (const auto& [epoch, live] : state.formation.live()) {
    const std::vector<InstanceId> named(meant.begin(), meant.end());
    if (Overlap(live.members, named)) meant.insert(live.members.begin(), live.members.end());
  }
  return {meant.begin(), meant.end()};
}

void Formations::Pin(const Key& key, const Call& call, State& state) const {
  const std::vector<InstanceId> meant = Meant(key, state, call.order);
  switch (call.order.act) {
    case Act::kBind:
      for (const Call::Want& want : call.wants) {
        state.pins.Bind(want.members, {call.order.own, call.order.shift});
      }
      return;
    case Act::kShare:
      for (const Call::Want& want : call.wants) {
        state.pins.Bind(want.members, {.shares = true, .mode = call.order.shared});
      }
      return;
    case Act::kRelease:
      return state.pins.Alone(meant);
    case Act::kUnpin:
      return state.pins.Unpin(meant);
    case Act::kPin:
      return PinAsItIs(meant, state);
  }
}

// What is bound keeps the way in which it was bound.
void Formations::PinAsItIs(const std::vector<InstanceId>& meant, State& state) {
  const Pins before = state.pins;
  state.pins.Alone(meant);
  for (const auto& [epoch, live] : state.formation.live()) {
    if (live.stage > FormationSwitch::Stage::kBound || !Overlap(live.members, meant)) continue;
    const PinnedBind* how = before.BoundAs(live.members);
    state.pins.Bind(live.members, how == nullptr
                                      ? PinnedBind{.own = live.own, .shares = live.mode.has_value()}
                                      : *how);
  }
}

// As the operators who wait for it want it, or who have ordered what is there now; else as the
// policy says. Its lead could not compute a long request anew, so that one is let end.
Switch Formations::HowOf(const Key& key, const State& state,
                         const FormationSwitch::Live& live) const {
  for (const Call& call : state.calls) {
    if (call.order.how != Switch::kHard) continue;
    for (const Call::Want& want : call.wants) {
      if (Overlap(want.members, live.members)) return Switch::kHard;
    }
  }
  const bool lets_end =
      state.pins.Has(live.members.front()) || parts_.needs->LongestIn(key, live.report.epoch) > 0;
  if (lets_end) return Switch::kSequential;
  return live.mode ? state.choice.release_shared : state.choice.release;
}

// Those that wait for a bind that is concerned; their pins are gone with them.
void Formations::FailCalls(State& state, const absl::Status& why, const Concerned& concerned) {
  std::erase_if(state.calls, [&](const Call& call) {
    const auto is = [&](const Call::Want& want) { return want.bound && concerned(want); };
    if (std::none_of(call.wants.begin(), call.wants.end(), is)) return false;
    for (const Call::Want& want : call.wants) {
      if (want.bound) state.pins.Unpin(want.members);
    }
    parts_.effects->push_back(AnswerFormation{call.id, why, call.done});
    return true;
  });
}

void Formations::FailBindsOf(State& state, const std::vector<InstanceId>& members,
                             const absl::Status& why) {
  FailCalls(state, why, [&](const Call::Want& want) { return Overlap(want.members, members); });
}

// Whose pin another order has taken away, or that cannot be bound in the group's order any more.
void Formations::FailUnpinned(State& state) {
  const GroupOrder& order = state.formation.order();
  FailCalls(state, absl::AbortedError("another order took its place, or the group has changed"),
            [&](const Call::Want& want) {
              if (want.epoch != 0) return false;  // it is being bound
              const auto same = SubsetsOfSize(order, static_cast<int32_t>(want.members.size()));
              return state.pins.BoundAs(want.members) == nullptr ||
                     std::find(same.begin(), same.end(), want.members) == same.end();
            });
}

// A switch has ended: says so to those that wait for it.
void Formations::NoteDone(State& state, const SwitchEnded& ended) {
  const bool binds = ended.to > 1;
  if (binds && ended.outcome != SwitchOutcome::kDone) return;
  for (Call& call : state.calls) {
    std::erase_if(call.wants, [&](const Call::Want& want) {
      if (want.bound != binds || want.members != ended.members) return false;
      std::string done = absl::StrCat(FormationName(ended.to, ended.shared), ": ",
                                      Listed(ended.members), ", in ", TookText(ended.took_us));
      if (binds) absl::StrAppend(&done, " (cut-over ", TookText(ended.cut_over_us), ")");
      if (ended.outcome == SwitchOutcome::kForced) absl::StrAppend(&done, ", by force");
      if (!ended.reason.empty()) absl::StrAppend(&done, ": ", ended.reason);
      call.done.push_back(std::move(done));
      return true;
    });
  }
}

void Formations::AnswerCalls(State& state) {
  std::erase_if(state.calls, [&](Call& call) {
    std::erase_if(call.wants, [&](const Call::Want& want) {
      const FormationSwitch::Live* live = nullptr;
      for (const InstanceId member : want.members) {
        if (live == nullptr) live = state.formation.LiveOf(member);
      }
      const bool met = want.bound ? live != nullptr && live->members == want.members &&
                                        live->mode.has_value() == want.shares &&
                                        live->stage == FormationSwitch::Stage::kBound
                                  : live == nullptr;
      if (!met) return false;
      call.done.push_back(
          absl::StrCat(want.bound ? FormationName(live->subset.size, live->mode) : FormationName(1),
                       ": ", Listed(want.members), " already"));
      return true;
    });
    if (!call.wants.empty()) return false;
    parts_.effects->push_back(AnswerFormation{call.id, absl::OkStatus(), std::move(call.done)});
    return true;
  });
}

}  // namespace skein::scheduler::orchestrator
