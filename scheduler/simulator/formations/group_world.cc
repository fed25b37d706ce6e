#include "scheduler/simulator/formations/group_world.h"

#include <algorithm>
#include <cmath>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

using orchestrator::BindReason;
using orchestrator::Subset;

// What a sequence of the batch weighs against a token to compute when a request is placed: about
// as many tokens as a step computes in the time that one token of decode takes.
constexpr int64_t kSequenceWeight = 16;

void Count(std::vector<int64_t>* by_second, TimeUs now, int64_t tokens) {
  const auto second = static_cast<size_t>(now / kSecondUs);
  if (by_second->size() <= second) by_second->resize(second + 1);
  (*by_second)[second] += tokens;
}

}  // namespace

GroupWorld::GroupWorld(const StepProfile* profile, const WorldOptions& options,
                       const std::vector<GroupRequest>* requests)
    : profile_(profile), options_(options), requests_(requests), outcomes_(requests->size()) {
  const int64_t copies =
      options.copies_of_weights > 0 ? options.copies_of_weights : options.members;
  capacity_bytes_ = static_cast<double>(profile->KvTokens(options.members, copies)) *
                    profile->KvBytesPerToken() / options.members;
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
  const GroupRequest& of = (*requests_)[request];
  const double bytes =
      static_cast<double>(of.prompt_tokens + of.output_tokens) * profile_->KvBytesPerToken();
  if (member < 0) {
    return unit.bound && !unit.releasing && bytes / unit.subset.size <= capacity_bytes_;
  }
  if (bytes > capacity_bytes_) return false;
  if (unit.bound) return unit.releasing;
  const Member& at = At(member);
  const bool drains = options_.how == BindHow::kSequential || options_.how == BindHow::kSoft;
  return at.preparing == 0 || !drains || at.speculates;
}

// Whether the request leaves the unit to those that it is bound for, if it can.
bool GroupWorld::Avoids(const Unit& unit, size_t request) const {
  const GroupRequest& of = (*requests_)[request];
  const int64_t tokens = of.prompt_tokens + of.output_tokens;
  if (unit.reason == BindReason::kPriority) return of.priority <= 0;
  if (unit.reason != BindReason::kLength) return false;
  return static_cast<double>(tokens) * profile_->KvBytesPerToken() <= capacity_bytes_;
}

// At the batch with the least work an instance, among those that do not avoid it; a request of high
// priority goes to a bound group if there is one.
void GroupWorld::Place(size_t request, int64_t made) {
  SequenceBatch* best = nullptr;
  std::pair<int, double> best_score;
  const auto consider = [&](SequenceBatch* batch, int rank, int32_t size) {
    const auto sequences = static_cast<int64_t>(batch->running().size() + batch->waiting());
    const auto work = static_cast<double>(batch->tokens_to_compute() + kSequenceWeight * sequences);
    const std::pair<int, double> score = {rank, work / size};
    if (best != nullptr && best_score <= score) return;
    best = batch;
    best_score = score;
  };
  const bool urgent = (*requests_)[request].priority > 0;
  for (auto& [first, unit] : units_) {
    if (Takes(unit, -1, request)) {
      consider(&unit.batch, Avoids(unit, request) ? 2 : 0, unit.subset.size);
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

void GroupWorld::Arrive(size_t request, TimeUs now) {
  const GroupRequest& of = (*requests_)[request];
  const double bytes =
      static_cast<double>(of.prompt_tokens + of.output_tokens) * profile_->KvBytesPerToken();
  if (bytes > capacity_bytes_ * options_.members) {
    outcomes_[request].refused = true;
    return;
  }
  live_.insert(request);
  Place(request, 0);
}

// ---- KV ----

bool GroupWorld::Reserve(const Subset& subset, size_t request) {
  const GroupRequest& of = (*requests_)[request];
  const double bytes = static_cast<double>(of.prompt_tokens + of.output_tokens) *
                       profile_->KvBytesPerToken() / subset.size;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    if (At(i).held_bytes + bytes > capacity_bytes_) return false;
  }
  for (int32_t i = subset.first; i < subset.end(); ++i) At(i).held_bytes += bytes;
  holds_[request] = subset;
  return true;
}

void GroupWorld::Free(size_t request) {
  const auto held = holds_.extract(request);
  if (held.empty()) return;
  const GroupRequest& of = (*requests_)[request];
  const Subset& subset = held.mapped();
  const double bytes = static_cast<double>(of.prompt_tokens + of.output_tokens) *
                       profile_->KvBytesPerToken() / subset.size;
  for (int32_t i = subset.first; i < subset.end(); ++i) At(i).held_bytes -= bytes;
}

double GroupWorld::held_share() const {
  double bytes = 0;
  for (const Member& member : members_) bytes += member.held_bytes;
  return bytes / (capacity_bytes_ * options_.members);
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

void GroupWorld::Prepare(int32_t member, uint64_t epoch) {
  Member& at = At(member);
  at.preparing = epoch;
  at.prepared = false;
  // What waits at it for a place goes to the group, too, unless the two take turns from the start.
  if (options_.how == BindHow::kAlternate || options_.how == BindHow::kHard) return;
  const auto waiting = at.own.TakeWaiting();
  at.speculates = options_.how == BindHow::kSoft && at.own.Idle();
  PlaceAll(waiting);
}

// Members that are ready say so.
void GroupWorld::TellReady() {
  const bool drains = options_.how == BindHow::kSequential || options_.how == BindHow::kSoft;
  for (int32_t i = 0; i < options_.members; ++i) {
    Member& at = At(i);
    if (at.preparing == 0 || at.prepared) continue;
    if (options_.how == BindHow::kSoft && at.own.Idle()) at.speculates = true;
    if (drains && !at.own.Idle() && !at.speculates) continue;
    at.prepared = true;
    Tell(i, at.preparing, FormationTold::Phase::kPrepared, 0, 0);
  }
}

void GroupWorld::Commit(uint64_t epoch, const Subset& subset, TimeUs now) {
  if (At(subset.first).preparing == epoch) forming_[epoch] = {subset, now};
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
    at.speculates = false;
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
    const auto taken = at.speculates ? at.own.TakeAll() : at.own.TakeWaiting();
    moving.insert(moving.end(), taken.begin(), taken.end());
    at.preparing = 0;
    at.prepared = at.speculates = false;
    units_.erase(i);
    Tell(i, epoch, FormationTold::Phase::kBound, now - forming.since_us, 0);
  }
  Unit unit = MakeUnit(subset, true);
  unit.epoch = epoch;
  unit.reason = reason;
  units_.emplace(subset.first, std::move(unit));
  for (const auto& [request, made] : moving) Free(request);
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
    Free(request);
    At(subset.first).own.Add(request, made);
  }
  PlaceWaiting();
}

// ---- steps ----

TimeUs GroupWorld::NextEnd() const {
  TimeUs next = kNever;
  for (const auto& [first, unit] : units_) next = std::min(next, unit.until_us);
  return next;
}

void GroupWorld::Advance(TimeUs now) {
  for (auto& [first, unit] : units_) {
    if (unit.until_us <= now) EndStep(&unit, now);
  }
  std::vector<int32_t> over;
  for (const auto& [first, unit] : units_) {
    const bool empty = unit.batch.Idle() || unit.hard_end;
    if (unit.releasing && empty && unit.until_us == kNever) over.push_back(first);
  }
  for (const int32_t first : over) Split(&units_.at(first), now);
  TellReady();
  Form(now);
  if (!unplaced_.empty()) PlaceWaiting();
  for (auto& [first, unit] : units_) {
    if (unit.until_us == kNever && !IsForming(unit)) Start(&unit, now);
  }
}

void GroupWorld::EndStep(Unit* unit, TimeUs now) {
  const auto note = [&](const BatchSequence& sequence, int64_t index) {
    NoteToken(sequence, index, now);
  };
  unit->until_us = kNever;
  if (unit->bound && !unit->runs_own) return unit->batch.EndStep(note);
  for (int32_t i = unit->subset.first; i < unit->subset.end(); ++i) At(i).own.EndStep(note);
}

void GroupWorld::Start(Unit* unit, TimeUs now) {
  if (!unit->bound) {
    StartOwn(unit, now);
    return;
  }
  const int64_t bound_tokens =
      unit->batch.Admit([&](size_t request) { return Reserve(unit->subset, request); });
  int64_t own_tokens = 0;
  for (int32_t i = unit->subset.first; i < unit->subset.end(); ++i) {
    own_tokens = std::max(own_tokens, At(i).own.Admit([&](size_t request) {
      return Reserve({i, 1}, request);
    }));
  }
  if (bound_tokens == 0 && own_tokens == 0) return;
  const bool paused = options_.how == BindHow::kHard && !unit->releasing && bound_tokens > 0;
  if (!paused && unit->share.NextIsOwn(own_tokens, bound_tokens)) {
    StartOwn(unit, now);
  } else {
    StartBound(unit, now);
  }
}

// One step at each member that has work, side by side.
bool GroupWorld::StartOwn(Unit* unit, TimeUs now) {
  TimeUs longest_us = 0;
  for (int32_t i = unit->subset.first; i < unit->subset.end(); ++i) {
    SequenceBatch& own = At(i).own;
    const int64_t tokens = own.Admit([&](size_t request) { return Reserve({i, 1}, request); });
    if (tokens == 0) continue;
    const StepWork work = own.BeginStep();
    NoteStarted(own, now);
    longest_us = std::max(longest_us, Account(StepKind::kOwn, TpLayout(*profile_, 1), work, now));
  }
  if (longest_us == 0) return false;
  unit->runs_own = true;
  unit->until_us = now + longest_us;
  return true;
}

void GroupWorld::StartBound(Unit* unit, TimeUs now) {
  const int32_t size = unit->subset.size;
  const StepWork work = unit->batch.BeginStep();
  NoteStarted(unit->batch, now);
  const bool sp = work.tokens > shift_from_.at(size);
  const StepLayout layout = sp ? SpLayout(*profile_, size) : TpLayout(*profile_, size);
  unit->runs_own = false;
  unit->until_us = now + Account(sp ? StepKind::kSp : StepKind::kTp, layout, work, now);
}

// The duration of the step, which is counted.
TimeUs GroupWorld::Account(StepKind kind, const StepLayout& layout, const StepWork& work,
                           TimeUs now) {
  const double seconds = StepTime(*profile_, layout, work).Total();
  Steps& steps = steps_[static_cast<size_t>(kind)];
  ++steps.count;
  steps.busy_s += seconds;
  const TimeUs took_us = std::max<TimeUs>(1, std::llround(seconds * 1e6));
  Count(&tokens_by_second_, now + took_us, work.tokens);
  return took_us;
}

void GroupWorld::NoteStarted(const SequenceBatch& batch, TimeUs now) {
  for (const BatchSequence& sequence : batch.running()) {
    TimeUs& started_us = outcomes_[sequence.request].started_us;
    if (started_us == kNever && sequence.slice > 0) started_us = now;
  }
}

void GroupWorld::NoteToken(const BatchSequence& sequence, int64_t index, TimeUs now) {
  GroupOutcome& outcome = outcomes_[sequence.request];
  SKEIN_CHECK(outcome.made == index);
  ++outcome.made;
  if (index == 0) {
    outcome.first_token_us = now;
  } else {
    outcome.longest_gap_us = std::max(outcome.longest_gap_us, now - outcome.last_token_us);
  }
  outcome.last_token_us = now;
  Count(&output_by_second_, now, 1);
  end_us_ = std::max(end_us_, now);
  if (outcome.made < (*requests_)[sequence.request].output_tokens) return;
  Free(sequence.request);
  live_.erase(sequence.request);
}

// ---- load ----

orchestrator::GroupLoad GroupWorld::Load() const {
  orchestrator::GroupLoad load;
  load.members.resize(members_.size());
  load.waiting_requests = static_cast<int64_t>(unplaced_.size());
  const auto add = [&](const SequenceBatch& batch, const Subset& subset) {
    load.waiting_requests += static_cast<int64_t>(batch.waiting());
    auto& lead = load.members[static_cast<size_t>(subset.first)];
    lead.running_sequences += static_cast<int64_t>(batch.running().size());
    for (int32_t i = subset.first; i < subset.end(); ++i) {
      load.members[static_cast<size_t>(i)].running_tokens += batch.held_tokens() / subset.size;
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
