#include "engine/model/group/step_agreement.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/parallel/step_digest.h"

namespace skein::engine {
namespace {

template <typename Action>
void ForEachGroup(const GroupPart& part, const Action& action) {
  action(part.all);
  for (Communicator* comm :
       {part.mode.sp > 1 ? part.sp : nullptr, part.mode.tp > 1 ? part.tp : nullptr}) {
    if (comm != nullptr && comm != part.all) action(comm);
  }
}

}  // namespace

absl::Status AgreeOnStep(const GroupPart& part, std::span<const SequenceStep> sequences,
                         const std::vector<SequenceResult>& results, const EngineSpec& spec,
                         int64_t key_segment) {
  const uint64_t digest = DigestOfStep(part.mode, sequences, results, spec, key_segment);
  ForEachGroup(part, [digest](Communicator* comm) { comm->Tag(digest); });
  const bool runs = std::any_of(results.begin(), results.end(),
                                [](const auto& result) { return result.status.ok(); });
  if (runs) return absl::OkStatus();
  const absl::Status met = StepError(part.all->AllGather({}, {}, part.deadline));
  if (!met.ok()) AbortGroup(part, met);
  return met;
}

absl::Status MeetAtStepEnd(const GroupPart& part) {
  absl::Status met;
  ForEachGroup(part, [&](Communicator* comm) {
    if (met.ok()) met = comm->AllGather({}, {}, part.deadline);
  });
  return StepError(met);
}

absl::Status StepError(const absl::Status& status) {
  if (!absl::IsInternal(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("the ranks were given other steps or models, or differ in --reproducible: ",
                   std::string(status.message())));
}

void AbortGroup(const GroupPart& part, const absl::Status& reason) {
  ForEachGroup(part, [&reason](Communicator* comm) { comm->Abort(reason); });
}

}  // namespace skein::engine
