#include "engine/emulated/faulty_engine.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

bool Has(const SequenceStep& sequence, int64_t token) {
  return token >= 0 &&
         std::find(sequence.prompt.begin(), sequence.prompt.end(), token) != sequence.prompt.end();
}

bool AnyHas(std::span<const SequenceStep> sequences, int64_t token) {
  return std::any_of(sequences.begin(), sequences.end(),
                     [token](const SequenceStep& one) { return Has(one, token); });
}

}  // namespace

absl::Status FaultyEngine::Before(std::span<const SequenceStep> sequences) const {
  while (AnyHas(sequences, faults_.hang_token)) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (!AnyHas(sequences, faults_.fail_token)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("token ", faults_.fail_token, " fails this emulated device"));
}

void FaultyEngine::SpoilNan(std::span<const SequenceStep> sequences,
                            std::vector<SequenceResult>* results) const {
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!Has(sequences[i], faults_.nan_token)) continue;
    (*results)[i] = {};
    (*results)[i].status = absl::InternalError("logits hold NaN or infinity");
  }
}

absl::Status FaultyEngine::Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                                std::vector<SequenceResult>* results) {
  absl::Status status = Before(sequences);
  if (status.ok()) status = engine_->Step(sequences, progress, results);
  if (status.ok()) SpoilNan(sequences, results);
  return status;
}

absl::Status FaultyEngine::StepTogether(const GroupPart& part,
                                        std::span<const SequenceStep> sequences,
                                        StepProgress* progress,
                                        std::vector<SequenceResult>* results) {
  absl::Status status = Before(sequences);
  if (status.ok()) status = engine_->StepTogether(part, sequences, progress, results);
  if (status.ok()) SpoilNan(sequences, results);
  return status;
}

}  // namespace skein::engine
