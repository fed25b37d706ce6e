#include "services/worker/engine/step_counts.h"

namespace skein::services {
namespace {

const char* NameOf(scheduler::StepMode mode) {
  if (mode.sp == 1) return "tp";
  return mode.tp == 1 ? "sp" : "sp_tp";
}

}  // namespace

void StepCounts::Add(const scheduler::RunStep& step) {
  if (step.probe || step.sequences.empty()) return;
  if (step.group.has_value()) return AddOfGroup(*step.group, step.sequences);
  const scheduler::RingPart* const ring = step.sequences.front().ring.get();
  if (ring == nullptr) return Add("own", 1, step.sequences);
  Add(ring->tp > 1 ? "ring_tp" : "ring", ring->comm_addresses.size(), step.sequences);
}

void StepCounts::Add(const scheduler::GroupStep& step) {
  if (!step.mode.own()) AddOfGroup(step.mode, step.sequences);
}

void StepCounts::AddOfGroup(scheduler::StepMode mode,
                            const std::vector<scheduler::StepSequence>& sequences) {
  Add(NameOf(mode), static_cast<size_t>(mode.sp * mode.tp), sequences);
}

void StepCounts::Add(const char* mode, size_t ranks,
                     const std::vector<scheduler::StepSequence>& sequences) {
  const std::lock_guard lock(mutex_);
  Sum& sum = sums_[{mode, static_cast<int>(ranks)}];
  ++sum.steps;
  for (const scheduler::StepSequence& sequence : sequences) {
    sum.tokens += static_cast<uint64_t>(sequence.count);
  }
}

std::vector<StepTotals> StepCounts::Totals() const {
  const std::lock_guard lock(mutex_);
  std::vector<StepTotals> totals;
  for (const auto& [kind, sum] : sums_) {
    totals.push_back({kind.first, kind.second, sum.steps, sum.tokens});
  }
  return totals;
}

}  // namespace skein::services
