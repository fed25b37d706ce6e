#include "scheduler/simulator/formations/group_record.h"

#include <algorithm>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

void Count(std::vector<int64_t>* by_second, TimeUs now, int64_t tokens) {
  const auto second = static_cast<size_t>(now / kSecondUs);
  if (by_second->size() <= second) by_second->resize(second + 1);
  (*by_second)[second] += tokens;
}

}  // namespace

void GroupRecord::NoteStarted(const SequenceBatch& batch, TimeUs now) {
  for (const BatchSequence& sequence : batch.running()) {
    TimeUs& started_us = outcomes_[sequence.request].started_us;
    if (started_us == kNever && sequence.slice > 0) started_us = now;
  }
}

void GroupRecord::NoteStep(StepKind kind, const StepParts& time) {
  Steps& steps = steps_[static_cast<size_t>(kind)];
  ++steps.count;
  steps.time.Add(time);
}

void GroupRecord::NoteTokens(int64_t tokens, TimeUs end_us) {
  Count(&tokens_by_second_, end_us, tokens);
}

void GroupRecord::NoteOutput(const BatchSequence& sequence, int64_t index, TimeUs now) {
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
}

}  // namespace skein::scheduler
