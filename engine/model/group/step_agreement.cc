#include "engine/model/group/step_agreement.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/model/group/agreement.h"
#include "engine/model/ring/ring_check.h"

namespace skein::engine {
namespace {

// A digest of everything that decides the rows and their results, in one model and mode.
uint64_t DigestOf(GroupMode mode, std::span<const SequenceStep> sequences, const EngineSpec& spec,
                  int64_t key_segment) {
  Digest digest(spec.model_hash);
  digest.Add(static_cast<uint64_t>(key_segment));
  digest.Add(static_cast<uint64_t>(mode.sp));
  for (const SequenceStep& sequence : sequences) {
    digest.Add(static_cast<uint64_t>(sequence.position));
    digest.AddIds(sequence.tokens);
    digest.AddIds(sequence.next_tokens);
    digest.Add((sequence.sample ? 1u : 0u) + (sequence.want_logits ? 2u : 0u));
    if (sequence.sampling != nullptr) digest.Add(sequence.sampling->seed ^ sequence.token_index);
  }
  return digest.value();
}

// All ranks were given the same step: else what they add up is nothing. `refusals`: whether any
// rank refuses any sequence. `scratch` as GatherValues'.
absl::StatusOr<bool> AgreeOn(uint64_t digest, bool refuses, const GroupPart& part, Device* device,
                             std::byte* scratch) {
  const uint64_t mine[] = {digest, refuses ? 1u : 0u};
  const absl::StatusOr<std::vector<uint64_t>> all =
      GatherValues(part.all, device, mine, scratch, part.deadline);
  if (!all.ok()) return all.status();
  bool any = false;
  for (size_t rank = 0; 2 * rank < all->size(); ++rank) {
    any = any || (*all)[2 * rank + 1] != 0;
    if ((*all)[2 * rank] == all->front()) continue;
    return absl::FailedPreconditionError("rank " + std::to_string(rank) +
                                         " was given another model, mode or step than rank 0");
  }
  return any;
}

// A sequence that one rank refuses (for its own blocks, say) runs at no rank. 64 sequences at a
// time.
absl::Status ShareRefusals(const GroupPart& part, Device* device, std::byte* scratch,
                           std::vector<SequenceResult>& results) {
  for (size_t begin = 0; begin < results.size(); begin += 64) {
    const auto some =
        std::span(results).subspan(begin, std::min<size_t>(64, results.size() - begin));
    uint64_t refused = 0;
    for (size_t i = 0; i < some.size(); ++i) refused |= uint64_t{!some[i].status.ok()} << i;
    const absl::StatusOr<std::vector<uint64_t>> all =
        GatherValues(part.all, device, {&refused, 1}, scratch, part.deadline);
    if (!all.ok()) return all.status();
    for (size_t rank = 0; rank < all->size(); ++rank) {
      for (size_t i = 0; i < some.size(); ++i) {
        if (((*all)[rank] >> i & 1) != 0) some[i].status.Update(RefusedBy(rank));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AgreeOnStep(const GroupPart& part, std::span<const SequenceStep> sequences,
                         const EngineSpec& spec, int64_t key_segment, Device* device,
                         std::byte* scratch, std::vector<SequenceResult>& results) {
  const bool refuses = std::any_of(results.begin(), results.end(),
                                   [](const auto& result) { return !result.status.ok(); });
  const absl::StatusOr<bool> refusals =
      AgreeOn(DigestOf(part.mode, sequences, spec, key_segment), refuses, part, device, scratch);
  if (absl::IsFailedPrecondition(refusals.status())) return refusals.status();  // so say all ranks
  absl::Status status = refusals.status();
  if (status.ok() && *refusals) status = ShareRefusals(part, device, scratch, results);
  if (!status.ok()) AbortGroup(part, status);
  return status;
}

void AbortGroup(const GroupPart& part, const absl::Status& reason) {
  for (Communicator* comm :
       {part.all, part.mode.sp > 1 ? part.sp : nullptr, part.mode.tp > 1 ? part.tp : nullptr}) {
    if (comm != nullptr) comm->Abort(reason);
  }
}

}  // namespace skein::engine
