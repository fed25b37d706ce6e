// The steps of a simulated group (GroupWorld).
#include <algorithm>
#include <cmath>

#include "scheduler/simulator/formations/group_world.h"
#include "scheduler/worker/group/own_pause.h"

namespace skein::scheduler {

using orchestrator::Subset;

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

// Lets waiting requests enter. Then the tokens that a step would run now.
int64_t GroupWorld::Admit(SequenceBatch* batch, const Subset& subset) {
  return batch->Admit([&](size_t request) { return kv_.Reserve(subset, request); });
}

void GroupWorld::Start(Unit* unit, TimeUs now) {
  if (!unit->bound) return StartOwn(unit, now);
  const int64_t bound_tokens = Admit(&unit->batch, unit->subset);
  int64_t own_tokens = 0;
  for (int32_t i = unit->subset.first; i < unit->subset.end(); ++i) {
    own_tokens += Admit(&At(i).own, {i, 1});
  }
  if (bound_tokens == 0 && own_tokens == 0) return;
  const bool paused = !unit->releasing && bound_tokens > 0 &&
                      OwnPauses(unit->own, now - unit->bind_us, unit->own_pause_us);
  if (!paused && unit->share.NextIsOwn(own_tokens, bound_tokens)) {
    StartOwn(unit, now);
  } else {
    StartBound(unit, now);
  }
}

// One step at each member that has work, side by side.
void GroupWorld::StartOwn(Unit* unit, TimeUs now) {
  TimeUs longest_us = 0;
  for (int32_t i = unit->subset.first; i < unit->subset.end(); ++i) {
    SequenceBatch& own = At(i).own;
    if (Admit(&own, {i, 1}) == 0) continue;
    longest_us = std::max(longest_us, Run(StepKind::kOwn, TpLayout(*profile_, 1), {}, &own, now));
  }
  if (longest_us == 0) return;
  unit->runs_own = true;
  unit->until_us = now + longest_us;
}

void GroupWorld::StartBound(Unit* unit, TimeUs now) {
  const int32_t size = unit->subset.size;
  const bool sp = unit->batch.StepTokens() > shift_from_.at(size);
  const StepLayout layout = sp ? SpLayout(*profile_, size) : TpLayout(*profile_, size);
  const StepKind mode = sp ? StepKind::kSp : StepKind::kTp;
  StepParts extra;
  if (unit->mode.value_or(mode) != mode) {
    record_.NoteShift();
    extra.software_s = options_.shift_s;
  }
  unit->mode = mode;
  unit->runs_own = false;
  unit->until_us = now + Run(mode, layout, extra, &unit->batch, now);
}

// Begins a step of the batch, which takes `extra` longer. Its duration.
TimeUs GroupWorld::Run(StepKind kind, const StepLayout& layout, StepParts extra,
                       SequenceBatch* batch, TimeUs now) {
  const StepWork work = batch->BeginStep();
  record_.NoteStarted(*batch, now);
  extra.Add(StepTime(*profile_, layout, work));
  record_.NoteStep(kind, extra);
  const TimeUs took_us = std::max<TimeUs>(1, std::llround(extra.Total() * 1e6));
  record_.NoteTokens(work.tokens, now + took_us);
  return took_us;
}

void GroupWorld::NoteToken(const BatchSequence& sequence, int64_t index, TimeUs now) {
  record_.NoteOutput(sequence, index, now);
  if (index + 1 < (*requests_)[sequence.request].output_tokens) return;
  kv_.Free(sequence.request);
  live_.erase(sequence.request);
}

}  // namespace skein::scheduler
