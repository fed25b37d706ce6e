// One rank's part in a step of a bound group of emulated devices. Internal to this folder.
//
// Each rank writes the tags of its own heads, in blocks of the group's layout. After them every
// rank folds what it holds of each head, all gather the heads' digests and join them, so that all
// sample what one device with all heads would have sampled. A rank whose blocks hold the wrong
// tokens, heads or layout changes every rank's answer. Where several ranks hold a head, they must
// agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/emulated/tagged_memory.h"
#include "engine/engine.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

class GroupRun {
 public:
  // All outlive the run.
  GroupRun(const EngineSpec& spec, std::span<const KvRegion> regions, const EmulatedTimes& times,
           int64_t digest_tokens, const GroupPart& part, std::span<const SequenceStep> sequences);

  // As Engine::StepTogether.
  absl::Status Run(StepProgress* progress, std::vector<SequenceResult>* results);

 private:
  absl::Status CheckPart() const;
  absl::Status RunAgreed(StepProgress* progress, std::vector<SequenceResult>* results);
  absl::Status Answer(std::vector<SequenceResult>* results) const;
  // The joined digests of all heads, from this rank's `mine`, [tokens][own heads].
  absl::StatusOr<std::vector<uint64_t>> JoinHeads(const std::vector<uint64_t>& mine) const;

  const EngineSpec& spec_;
  const std::span<const KvRegion> regions_;
  const EmulatedTimes& times_;
  const int64_t digest_tokens_;
  const GroupPart& part_;
  const std::span<const SequenceStep> sequences_;
};

}  // namespace skein::engine
