#include "scheduler/simulator/formations/decode_group.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

using orchestrator::Subset;

DecodeGroup::DecodeGroup(const DecodeGroupOptions& options, const std::vector<SimRequest>* requests,
                         std::vector<DecodeOutcome>* outcomes)
    : options_(options),
      requests_(requests),
      outcomes_(outcomes),
      members_(static_cast<size_t>(options.members)) {
  for (int32_t i = 0; i < options.members; ++i) {
    At(i).free_blocks = options.blocks;
    units_.emplace(i, MakeUnit({i, 1}, false));
  }
}

DecodeGroup::Unit DecodeGroup::MakeUnit(const Subset& subset, bool bound) const {
  return {.subset = subset, .share = StepShare(options_.own_share), .bound = bound};
}

DecodeGroup::Unit& DecodeGroup::UnitOf(int32_t member) {
  return std::prev(units_.upper_bound(member))->second;
}
const DecodeGroup::Unit& DecodeGroup::UnitOf(int32_t member) const {
  return std::prev(units_.upper_bound(member))->second;
}

void DecodeGroup::BindForGood(const Subset& subset) {
  SKEIN_CHECK(Idle());
  for (int32_t i = subset.first; i < subset.end(); ++i) units_.erase(i);
  units_.emplace(subset.first, MakeUnit(subset, true));
}

// ---- placement ----

bool DecodeGroup::IsForming(const Subset& subset) const {
  return std::any_of(forming_.begin(), forming_.end(),
                     [&](const auto& forming) { return forming.second.subset.Overlaps(subset); });
}

// A member of a bound group that does not lead it, from the commit until it is released.
bool DecodeGroup::Closed(int32_t member) const {
  const Unit& unit = UnitOf(member);
  if (unit.bound) return !unit.releasing && unit.subset.first != member;
  return std::any_of(forming_.begin(), forming_.end(), [&](const auto& forming) {
    const Subset& subset = forming.second.subset;
    return subset.first != member && subset.Overlaps({member, 1});
  });
}

void DecodeGroup::AddCandidates(uint64_t first_id, std::vector<DecodeCandidate>* candidates) const {
  for (int32_t i = 0; i < options_.members; ++i) {
    const int64_t free = Closed(i) ? 0 : std::max<int64_t>(0, At(i).free_blocks);
    candidates->push_back({.instance = {first_id + static_cast<uint64_t>(i)},
                           .free_blocks = free,
                           .active_requests = At(i).active});
  }
}

int64_t DecodeGroup::BlocksOf(size_t request, int32_t size) const {
  const SimRequest& of = (*requests_)[request];
  const int64_t tokens_of_block = options_.block_tokens * size;
  return (of.prompt_tokens + of.output_tokens + tokens_of_block - 1) / tokens_of_block;
}

void DecodeGroup::Hold(Sequence* sequence, const Subset& subset, int64_t blocks) {
  sequence->holds = subset;
  sequence->blocks = blocks;
  for (int32_t i = subset.first; i < subset.end(); ++i) At(i).free_blocks -= blocks;
}

void DecodeGroup::Free(const Sequence& sequence) {
  const Subset& subset = sequence.holds;
  for (int32_t i = subset.first; i < subset.end(); ++i) At(i).free_blocks += sequence.blocks;
}

void DecodeGroup::Place(size_t request, int32_t member) {
  Unit& unit = UnitOf(member);
  const bool bound = unit.bound && !unit.releasing;
  const SimRequest& of = (*requests_)[request];
  Sequence sequence{.member = member,
                    .epoch = unit.epoch,
                    .bound = bound,
                    .kv_tokens = of.prompt_tokens,
                    .lacks = of.output_tokens - 1,
                    .left = of.output_tokens - 1};
  const Subset subset = bound ? unit.subset : Subset{member, 1};
  Hold(&sequence, subset, BlocksOf(request, subset.size));
  if (bound) ++unit.coming;
  ++At(member).active;
  DecodeOutcome& outcome = (*outcomes_)[request];
  outcome.instance = member;
  outcome.size = subset.size;
  SKEIN_CHECK(sequences_.emplace(request, sequence).second);
}

void DecodeGroup::Ready(size_t request, TimeUs now) {
  Sequence& sequence = sequences_.at(request);
  SKEIN_CHECK(!sequence.joined);
  DecodeOutcome& outcome = (*outcomes_)[request];
  outcome.ready_us = outcome.last_us = now;
  sequence.joined = true;
  Unit& unit = UnitOf(sequence.member);
  const bool stands = sequence.bound && unit.bound && unit.epoch == sequence.epoch;
  if (stands) {
    --unit.coming;
    unit.batch.push_back(request);
  } else {
    JoinOwn(request, &sequence);
  }
  if (sequence.left == 0) Finish(request);
}

// Whatever its KV was placed in.
void DecodeGroup::JoinOwn(size_t request, Sequence* sequence) {
  if (sequence->bound) {
    Free(*sequence);
    Hold(sequence, {sequence->member, 1}, BlocksOf(request, 1));
    sequence->bound = false;
  }
  At(sequence->member).own.push_back(request);
}

void DecodeGroup::Finish(size_t request) {
  const Sequence sequence = sequences_.extract(request).mapped();
  Free(sequence);
  --At(sequence.member).active;
  std::erase(sequence.bound ? UnitOf(sequence.member).batch : At(sequence.member).own, request);
  ++finished_;
}

int64_t DecodeGroup::free_blocks() const {
  int64_t free = 0;
  for (const Member& member : members_) free += member.free_blocks;
  return free;
}

// ---- orders ----

void DecodeGroup::Tell(int32_t member, uint64_t epoch, FormationTold::Phase phase,
                       TimeUs cut_over_us, TimeUs drain_us) {
  told_.push_back(
      {member, {.epoch = epoch, .phase = phase, .cut_over_us = cut_over_us, .drain_us = drain_us}});
}

std::vector<std::pair<int32_t, FormationTold>> DecodeGroup::TakeTold() {
  return std::exchange(told_, {});
}

void DecodeGroup::Prepare(int32_t member, const PrepareFormation& order) {
  At(member).preparing = order.epoch;
  At(member).prepared = false;
}

void DecodeGroup::TellReady() {
  for (int32_t i = 0; i < options_.members; ++i) {
    Member& at = At(i);
    if (at.preparing == 0 || std::exchange(at.prepared, true)) continue;
    Tell(i, at.preparing, FormationTold::Phase::kPrepared, 0, 0);
  }
}

void DecodeGroup::Commit(uint64_t epoch, const Subset& subset, TimeUs now) {
  if (At(subset.first).preparing == epoch) forming_[epoch] = {subset, now};
}

void DecodeGroup::End(int32_t member, uint64_t epoch, Switch how, TimeUs now) {
  Unit& unit = UnitOf(member);
  if (unit.bound && unit.epoch == epoch) {
    if (unit.subset.first != member && how == Switch::kSequential) return;
    if (!unit.releasing) unit.release_us = now;
    unit.releasing = true;
    unit.hard_end = unit.hard_end || how == Switch::kHard;
    return;
  }
  forming_.erase(epoch);
  if (At(member).preparing == epoch) At(member).preparing = 0;
  Tell(member, epoch, FormationTold::Phase::kEnded, 0, 0);
}

// Commits whose members have ended what they had launched take effect.
void DecodeGroup::Form(TimeUs now) {
  for (auto it = forming_.begin(); it != forming_.end();) {
    const Subset& subset = it->second.subset;
    bool ready = true;
    for (int32_t i = subset.first; i < subset.end(); ++i) {
      const Unit& unit = UnitOf(i);
      ready = ready && !unit.bound && unit.until_us == kNever && !unit.next.exists();
    }
    if (ready) Merge(it->first, it->second, now);
    it = ready ? forming_.erase(it) : std::next(it);
  }
}

void DecodeGroup::Merge(uint64_t epoch, const Forming& forming, TimeUs now) {
  const Subset& subset = forming.subset;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    At(i).preparing = 0;
    units_.erase(i);
    Tell(i, epoch, FormationTold::Phase::kBound, now - forming.since_us, 0);
  }
  Unit unit = MakeUnit(subset, true);
  unit.epoch = epoch;
  units_.emplace(subset.first, std::move(unit));
}

bool DecodeGroup::IsOver(const Unit& unit) const {
  return unit.releasing && (unit.hard_end || (unit.batch.empty() && unit.coming == 0));
}

// REQUIRES: between two steps, and none is settled.
void DecodeGroup::Split(Unit* unit, TimeUs now) {
  const Subset subset = unit->subset;
  const uint64_t epoch = unit->epoch;
  const TimeUs drain_us = now - unit->release_us;
  const std::vector<size_t> left = std::move(unit->batch);
  units_.erase(subset.first);
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    units_.emplace(i, MakeUnit({i, 1}, false));
    Tell(i, epoch, FormationTold::Phase::kEnded, 0, drain_us);
  }
  for (const size_t request : left) JoinOwn(request, &sequences_.at(request));
}

// ---- steps ----

TimeUs DecodeGroup::NextEnd() const {
  TimeUs next = kNever;
  for (const auto& [first, unit] : units_) next = std::min(next, unit.until_us);
  return next;
}

void DecodeGroup::Advance(TimeUs now) {
  std::vector<int32_t> over;
  for (auto& [first, unit] : units_) {
    if (unit.until_us <= now) EndStep(&unit, now);
    if (IsOver(unit) && unit.until_us == kNever && !unit.next.exists()) over.push_back(first);
  }
  for (const int32_t first : over) Split(&units_.at(first), now);
  TellReady();
  Form(now);
  for (auto& [first, unit] : units_) {
    const bool settles = !IsOver(unit) && !IsForming(unit.subset);
    if (unit.until_us == kNever) {
      if (!unit.next.exists() && settles) unit.next = Settle(&unit);
      if (!unit.next.exists()) continue;
      unit.current = std::exchange(unit.next, {});
      if (unit.current.open) unit.current = SettleOwn(unit);
      SKEIN_CHECK(!unit.current.runs.empty());
      unit.until_us = now + unit.current.took_us;
      for (const size_t request : unit.current.runs) {
        TimeUs& started_us = (*outcomes_)[request].started_us;
        started_us = std::min(started_us, now);
      }
    }
    if (!unit.next.exists() && settles) unit.next = Settle(&unit);
  }
}

// Sequences of the batch that a step would run.
int64_t DecodeGroup::Waiting(const std::vector<size_t>& batch) const {
  const auto count = std::count_if(
      batch.begin(), batch.end(), [&](size_t request) { return sequences_.at(request).lacks > 0; });
  return std::min<int64_t>(count, options_.batch_sequences);
}

// The sequences of the batch that the step runs; how many. If they are not all, the others come
// first in the next one.
int64_t DecodeGroup::Take(std::vector<size_t>* batch, Step* step, int64_t* kv_tokens) {
  int64_t taken = 0;
  size_t i = 0;
  for (; i < batch->size() && taken < options_.batch_sequences; ++i) {
    Sequence& sequence = sequences_.at((*batch)[i]);
    if (sequence.lacks == 0) continue;
    *kv_tokens += sequence.kv_tokens++;
    --sequence.lacks;
    step->runs.push_back((*batch)[i]);
    ++taken;
  }
  std::rotate(batch->begin(), batch->begin() + static_cast<std::ptrdiff_t>(i), batch->end());
  return taken;
}

namespace {

TimeUs Microseconds(double seconds) { return std::max<TimeUs>(1, std::llround(seconds * 1e6)); }

}  // namespace

// Which step the unit runs next, of what waits now, if there is one.
DecodeGroup::Step DecodeGroup::Settle(Unit* unit) {
  if (!unit->bound) return SettleOwn(*unit);
  int64_t own = 0;
  for (int32_t i = unit->subset.first; i < unit->subset.end(); ++i) own += Waiting(At(i).own);
  const int64_t bound = Waiting(unit->batch);
  if (own + bound == 0) return {};
  Step step;
  step.open = unit->share.NextIsOwn(own, bound);
  if (step.open) return step;
  int64_t kv_tokens = 0;
  const int32_t size = unit->subset.size;
  const int64_t sequences = Take(&unit->batch, &step, &kv_tokens);
  const auto shift = options_.shifts.find(size);
  const bool in_base = shift != options_.shifts.end() && sequences > shift->second.tokens;
  const int32_t tp = in_base ? shift->second.tp : size;
  step.kind = tp == size ? StepKind::kTp : tp == 1 ? StepKind::kSp : StepKind::kSpTp;
  const double seconds = options_.times.Seconds(size / tp, tp, sequences, kv_tokens);
  step.took_us = Microseconds(seconds);
  step.busy_instance_s = seconds * size;
  step.count = size;
  return step;
}

// One step at each member that has work, side by side.
DecodeGroup::Step DecodeGroup::SettleOwn(const Unit& unit) {
  Step step;
  for (int32_t i = unit.subset.first; i < unit.subset.end(); ++i) {
    int64_t kv_tokens = 0;
    const int64_t sequences = Take(&At(i).own, &step, &kv_tokens);
    if (sequences == 0) continue;
    const double seconds = options_.times.Seconds(1, 1, sequences, kv_tokens);
    step.took_us = std::max(step.took_us, Microseconds(seconds));
    step.busy_instance_s += seconds;
    ++step.count;
  }
  return step;
}

void DecodeGroup::EndStep(Unit* unit, TimeUs now) {
  unit->until_us = kNever;
  const Step step = std::exchange(unit->current, {});
  steps_[static_cast<size_t>(step.kind)] += step.count;
  busy_instance_s_ += step.busy_instance_s;
  tokens_.emplace_back(now, static_cast<int64_t>(step.runs.size()));
  for (const size_t request : step.runs) {
    DecodeOutcome& outcome = (*outcomes_)[request];
    if (outcome.second_us == kNever) outcome.second_us = now;
    outcome.last_us = now;
    if (--sequences_.at(request).left == 0) Finish(request);
  }
}

// ---- load ----

orchestrator::GroupLoad DecodeGroup::Load() const {
  orchestrator::GroupLoad load;
  for (const Member& member : members_) {
    const int64_t held = options_.blocks - member.free_blocks;
    load.members.push_back({member.active, held * options_.block_tokens});
  }
  load.waiting_requests = waiting_;
  return load;
}

}  // namespace skein::scheduler
