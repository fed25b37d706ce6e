#include "scheduler/simulator/formations/group_world.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "scheduler/base/own_end_first.h"
#include "scheduler/placement/freeness.h"

namespace skein::scheduler {
namespace {

using orchestrator::BindReason;
using orchestrator::Subset;

// What a sequence of the batch weighs against a token to compute when a request is placed: about
// as many tokens as a step computes in the time that one token of decode takes.
constexpr int64_t kSequenceWeight = 16;

}  // namespace

GroupWorld::GroupWorld(const StepProfile* profile, const WorldOptions& options,
                       const std::vector<GroupRequest>* requests)
    : profile_(profile),
      options_(options),
      requests_(requests),
      kv_(*profile, options.members,
          options.copies_of_weights > 0 ? options.copies_of_weights : options.members, requests),
      record_(requests->size()) {
  for (int32_t i = 0; i < options.members; ++i) {
    members_.push_back({.own = SequenceBatch(requests, options.limits)});
    units_.emplace(i, MakeUnit({i, 1}, false));
  }
  for (int32_t size = 2; size <= options.members; size *= 2) {
    shift_from_[size] = options.shift ? ShiftTokens(*profile, size) : kNoShift;
  }
}

GroupWorld::Unit GroupWorld::MakeUnit(const Subset& subset, bool bound) {
  return {.subset = subset,
          .batch = SequenceBatch(requests_, options_.limits),
          .share = StepShare(options_.own_share),
          .bound = bound};
}

GroupWorld::Unit& GroupWorld::UnitOf(int32_t member) {
  return std::prev(units_.upper_bound(member))->second;
}

void GroupWorld::BindForGood(const Subset& subset) {
  for (int32_t i = subset.first; i < subset.end(); ++i) units_.erase(i);
  units_.emplace(subset.first, MakeUnit(subset, true));
}

void GroupWorld::SetReason(int32_t first, BindReason reason) {
  const auto it = units_.find(first);
  if (it != units_.end()) it->second.reason = reason;
}

// ---- placement ----

// Whether `member` as such, or the unit's bound batch (member -1), takes this request now.
bool GroupWorld::Takes(const Unit& unit, int32_t member, size_t request) const {
  if (member < 0) return unit.bound && !unit.releasing && kv_.Fits(request, unit.subset.size);
  if (!kv_.Fits(request, 1)) return false;
  if (unit.bound) return unit.releasing;
  const Member& at = At(member);
  return at.preparing == 0 || !at.drains || (at.moves && at.prepared);
}

// Whether the request leaves the unit to those that it is bound for, if it can. `fewest`: sequences
// of the batch with the fewest that takes it elsewhere. It leaves a group for urgent requests by
// the orchestrator's rule, with sequences in place of its blocks; and always if its prompt is more
// than half of a step, because it would hold up the tokens of urgent requests.
bool GroupWorld::Avoids(const Unit& unit, size_t request, int64_t fewest) const {
  if (unit.reason == BindReason::kPriority) {
    const auto group = static_cast<double>(unit.batch.sequences() + 1);
    const bool is_short = 2 * (*requests_)[request].prompt_tokens <= options_.limits.step_tokens;
    const bool spare = is_short && kDedicatedReserve * group < static_cast<double>(fewest + 1);
    return (*requests_)[request].priority <= 0 && !spare;
  }
  return unit.reason == BindReason::kLength && kv_.Fits(request, 1);
}

int64_t GroupWorld::FewestSequences(size_t request) const {
  int64_t fewest = std::numeric_limits<int32_t>::max();
  for (const auto& [first, unit] : units_) {
    for (int32_t i = first; i < unit.subset.end(); ++i) {
      if (Takes(unit, i, request)) fewest = std::min(fewest, At(i).own.sequences());
    }
  }
  return fewest;
}

// At the batch with the least work an instance, among those that do not avoid it; a request of high
// priority goes to a bound group if there is one.
void GroupWorld::Place(size_t request, int64_t made) {
  SequenceBatch* best = nullptr;
  std::pair<int, double> best_score;
  const auto consider = [&](SequenceBatch* batch, int rank, int32_t size) {
    const int64_t work = batch->tokens_to_compute() + kSequenceWeight * batch->sequences();
    const std::pair<int, double> score = {rank, static_cast<double>(work) / size};
    if (best != nullptr && best_score <= score) return;
    best = batch;
    best_score = score;
  };
  const bool urgent = (*requests_)[request].priority > 0;
  const int64_t fewest = FewestSequences(request);
  for (auto& [first, unit] : units_) {
    if (Takes(unit, -1, request)) {
      consider(&unit.batch, Avoids(unit, request, fewest) ? 2 : 0, unit.subset.size);
    }
    for (int32_t i = first; i < unit.subset.end(); ++i) {
      if (Takes(unit, i, request)) consider(&At(i).own, urgent ? 1 : 0, 1);
    }
  }
  if (best == nullptr) {
    unplaced_.emplace(request, made);
  } else {
    best->Add(request, made);
  }
}

void GroupWorld::PlaceAll(const std::vector<std::pair<size_t, int64_t>>& requests) {
  for (const auto& [request, made] : requests) Place(request, made);
}

void GroupWorld::PlaceWaiting() {
  const std::set<std::pair<size_t, int64_t>> waiting = std::move(unplaced_);
  unplaced_.clear();
  for (const auto& [request, made] : waiting) Place(request, made);
}

void GroupWorld::Arrive(size_t request) {
  if (!kv_.Fits(request, options_.members)) return record_.NoteRefused(request);
  live_.insert(request);
  Place(request, 0);
}

// ---- orders ----

void GroupWorld::Tell(int32_t member, uint64_t epoch, FormationTold::Phase phase,
                      TimeUs cut_over_us, TimeUs drain_us) {
  told_.push_back(
      {member, {.epoch = epoch, .phase = phase, .cut_over_us = cut_over_us, .drain_us = drain_us}});
}

std::vector<std::pair<int32_t, FormationTold>> GroupWorld::TakeTold() {
  return std::exchange(told_, {});
}

void GroupWorld::Prepare(int32_t member, const PrepareFormation& order) {
  Member& at = At(member);
  const bool leads = member == order.first;
  at.preparing = order.epoch;
  at.how = order.own;
  at.own_pause_us = order.own_pause_us.value_or(kOwnPauseUs);
  at.prepared = false;
  at.drains = OwnEndFirst(order.own, leads);
  at.moves = OwnJoinGroup(order.own);
  // What waits at it for a place is not to wait for that.
  if (at.drains) PlaceAll(at.own.TakeWaiting());
}

// Members that are ready say so.
void GroupWorld::TellReady() {
  for (int32_t i = 0; i < options_.members; ++i) {
    Member& at = At(i);
    if (at.preparing == 0 || at.prepared) continue;
    if (at.drains && !at.own.Idle()) continue;
    at.prepared = true;
    Tell(i, at.preparing, FormationTold::Phase::kPrepared, 0, 0);
  }
}

void GroupWorld::Commit(uint64_t epoch, const Subset& subset, TimeUs now) {
  const Member& lead = At(subset.first);
  if (lead.preparing == epoch) forming_[epoch] = {subset, lead.how, lead.own_pause_us, now};
}

void GroupWorld::End(int32_t member, uint64_t epoch, Switch how, TimeUs now) {
  Member& at = At(member);
  Unit& unit = UnitOf(member);
  if (unit.bound && unit.epoch == epoch) {
    if (unit.subset.first != member && how == Switch::kSequential) return;
    if (!unit.releasing) unit.release_us = now;
    unit.releasing = true;
    unit.hard_end = unit.hard_end || how == Switch::kHard;
    PlaceAll(unit.batch.TakeWaiting());
    return;
  }
  forming_.erase(epoch);
  if (at.preparing == epoch) {
    at.preparing = 0;
    at.drains = at.moves = false;
  }
  Tell(member, epoch, FormationTold::Phase::kEnded, 0, 0);
}

bool GroupWorld::IsForming(const Unit& unit) const {
  return std::any_of(forming_.begin(), forming_.end(), [&](const auto& forming) {
    return forming.second.subset.Overlaps(unit.subset);
  });
}

// Commits whose members are all between two steps take effect.
void GroupWorld::Form(TimeUs now) {
  for (auto it = forming_.begin(); it != forming_.end();) {
    const Subset subset = it->second.subset;
    bool ready = true;
    for (int32_t i = subset.first; i < subset.end(); ++i) {
      ready = ready && UnitOf(i).until_us == kNever;
    }
    if (ready) Merge(it->first, it->second, now);
    it = ready ? forming_.erase(it) : std::next(it);
  }
}

void GroupWorld::Merge(uint64_t epoch, const Forming& forming, TimeUs now) {
  const Subset& subset = forming.subset;
  const BindReason reason = UnitOf(subset.first).reason;
  std::vector<std::pair<size_t, int64_t>> moving;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    Member& at = At(i);
    const auto taken = at.moves ? at.own.TakeAll() : at.own.TakeWaiting();
    moving.insert(moving.end(), taken.begin(), taken.end());
    at.preparing = 0;
    at.prepared = at.drains = at.moves = false;
    units_.erase(i);
    Tell(i, epoch, FormationTold::Phase::kBound, now - forming.since_us, 0);
  }
  Unit unit = MakeUnit(subset, true);
  unit.epoch = epoch;
  unit.reason = reason;
  unit.own = forming.own;
  unit.own_pause_us = forming.own_pause_us;
  unit.bind_us = now;
  units_.emplace(subset.first, std::move(unit));
  for (const auto& [request, made] : moving) kv_.Free(request);
  PlaceAll(moving);
  PlaceWaiting();
}

// The lead takes back what the group still runs. REQUIRES: between two steps.
void GroupWorld::Split(Unit* unit, TimeUs now) {
  const Subset subset = unit->subset;
  const uint64_t epoch = unit->epoch;
  const TimeUs drain_us = now - unit->release_us;
  const auto left = unit->batch.TakeAll();
  units_.erase(subset.first);
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    units_.emplace(i, MakeUnit({i, 1}, false));
    Tell(i, epoch, FormationTold::Phase::kEnded, 0, drain_us);
  }
  for (const auto& [request, made] : left) {
    kv_.Free(request);
    At(subset.first).own.Add(request, made);
  }
  PlaceWaiting();
}

// ---- load ----

orchestrator::GroupLoad GroupWorld::Load() const {
  orchestrator::GroupLoad load;
  load.members.resize(members_.size());
  load.waiting_requests = static_cast<int64_t>(unplaced_.size());
  for (const auto& [request, made] : unplaced_) {
    load.waiting_tokens += (*requests_)[request].prompt_tokens + made;
  }
  const auto add = [&](const SequenceBatch& batch, const Subset& subset) {
    load.waiting_requests += static_cast<int64_t>(batch.waiting());
    load.waiting_tokens += batch.tokens_to_compute();
    // With what is still to be computed, such as after a release: the rest of it will run there.
    const int64_t tokens = batch.held_tokens() + batch.tokens_to_compute();
    auto& lead = load.members[static_cast<size_t>(subset.first)];
    lead.running_sequences += static_cast<int64_t>(batch.running().size());
    for (int32_t i = subset.first; i < subset.end(); ++i) {
      load.members[static_cast<size_t>(i)].running_tokens += tokens / subset.size;
    }
  };
  for (const auto& [first, unit] : units_) add(unit.batch, unit.subset);
  for (int32_t i = 0; i < options_.members; ++i) add(At(i).own, {i, 1});
  for (const size_t request : live_) {
    const GroupRequest& of = (*requests_)[request];
    load.longest_tokens = std::max(load.longest_tokens, of.prompt_tokens + of.output_tokens);
    load.highest_priority = std::max(load.highest_priority.value_or(of.priority), of.priority);
  }
  return load;
}

}  // namespace skein::scheduler
