#include "scheduler/orchestrator/explain/switch_notes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

// It is at one of its members as long as one is here, unless kKept later ones are.
SwitchNotes::OneNote* SwitchNotes::Find(const SwitchEnded& report) const {
  for (const InstanceId member : report.members) {
    const auto notes = notes_.find(member);
    if (notes == notes_.end()) continue;
    for (const std::shared_ptr<OneNote>& one : notes->second.kept) {
      if (one->told.epoch == report.epoch && one->told.to == report.to) return one.get();
    }
  }
  return nullptr;
}

SwitchNotes::OneNote* SwitchNotes::Add(const SwitchEnded& report, const Begun& begun) {
  const auto note = std::make_shared<OneNote>();
  note->told.epoch = report.epoch;
  note->told.from = report.from;
  note->told.to = report.to;
  note->told.shared = report.shared;
  note->told.began_us = begun.began_us;
  note->told.cause = begun.cause;
  note->told.why = report.why;
  note->told.own = report.own;
  for (const InstanceId member : report.members) {
    Notes& notes = notes_[member];
    if (notes.kept.size() == kKept) notes.kept.erase(notes.kept.begin());
    notes.kept.push_back(note);
    ++notes.count;
  }
  return note.get();
}

void SwitchNotes::Note(const SwitchEnded& report, const Begun& begun) {
  OneNote* note = Find(report);
  if (note == nullptr) note = Add(report, begun);
  note->told.hard = note->told.hard || begun.hard;
}

void SwitchNotes::NoteEnded(const SwitchEnded& ended, SwitchCause cause, TimeUs now) {
  OneNote* note = Find(ended);
  if (note == nullptr) note = Add(ended, {.cause = cause, .began_us = now - ended.took_us});
  note->told.ended_us = now;
  note->told.outcome = ended.outcome;
  note->told.reason = ended.reason;
  const bool forced =
      ended.outcome == SwitchOutcome::kForced || ended.outcome == SwitchOutcome::kFailed;
  note->told.hard = note->told.hard || forced;
}

void SwitchNotes::Leaves(InstanceId instance, TimeUs now) {
  const auto notes = notes_.find(instance);
  if (notes != notes_.end()) notes->second.left_us = now;
}

void SwitchNotes::Forget(InstanceId instance) { notes_.erase(instance); }

uint64_t SwitchNotes::NextOf(InstanceId instance) const {
  const auto notes = notes_.find(instance);
  if (notes == notes_.end()) return 0;
  const bool under_way = !notes->second.kept.back()->told.ended_us.has_value();
  return notes->second.count - (under_way ? 1 : 0);
}

void SwitchNotes::Tell(TimeUs decided_us, PlanExplanation* plan) const {
  const auto found = notes_.find(plan->decode);
  if (found == notes_.end()) return;
  const Notes& notes = found->second;
  const uint64_t oldest = notes.count - notes.kept.size();
  const uint64_t first = std::max(oldest, plan->switches_from);
  plan->switches_left_out = first - plan->switches_from;
  plan->switches.clear();
  plan->switches.reserve(notes.count - first);
  for (uint64_t number = first; number < notes.count; ++number) {
    const OneNote& note = *notes.kept[number - oldest];
    SwitchExplanation one = note.told;
    one.began_us -= decided_us;
    if (one.ended_us.has_value()) *one.ended_us -= decided_us;
    one.lost = notes.left_us != kNever && note.told.ended_us.value_or(kNever) >= notes.left_us;
    plan->switches.push_back(std::move(one));
  }
}

std::vector<InstanceId> SwitchNotes::instances() const {
  std::vector<InstanceId> instances;
  instances.reserve(notes_.size());
  for (const auto& [instance, notes] : notes_) instances.push_back(instance);
  return instances;
}

absl::Status SwitchNotes::CheckInvariants() const {
  for (const auto& [instance, notes] : notes_) {
    const bool right = !notes.kept.empty() && notes.kept.size() <= kKept &&
                       notes.kept.size() == std::min<uint64_t>(notes.count, kKept);
    if (right) continue;
    return absl::InternalError(absl::StrCat("SwitchNotes: instance ", instance.value, " keeps ",
                                            notes.kept.size(), " switches of ", notes.count,
                                            ", at most ", kKept, " are to be kept"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
