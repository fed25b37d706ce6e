// GroupEngine: one rank of the groups that share a checkpoint, each rank with its own weights
// (views of the whole model) and its own KV pool. It runs alone, like any Engine, or together with
// others; every step chooses (Flying Serving's switch, Shift Parallelism's modes), and both write
// the same pool, each in blocks of its own layout.
//
// What a switch needs is made by Make, so that a step together allocates nothing on a device and
// makes no views of the weights, in groups of 2, 4, 8 … ranks: the buffers (GroupBuffers, a sixth
// of RunState's bytes or so; on a host they are pages that nobody has written, so an engine that
// only ever runs alone does not pay for them), the views of each slice (some hundred bytes a layer)
// and the rotary angles of the longer sequences that a group can hold.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/forward/step_rows.h"
#include "engine/model/group/group_forward.h"
#include "engine/model/model_engine.h"
#include "engine/ops/ops.h"
#include "engine/sampling/samplers.h"

namespace skein::engine {

class GroupEngine final : public Engine {
 public:
  // `ranks_max`: of the largest group, at least 2 (2 … 4096). Errors as MakeModelEngine's. With
  // kv_fills_device the buffers take their part before the KV pool, so engines with equal budgets
  // have equal pools, as members of a group need.
  static absl::StatusOr<std::unique_ptr<GroupEngine>> Make(const std::string& model_dir,
                                                           std::unique_ptr<Ops> ops,
                                                           std::unique_ptr<Device> device,
                                                           const ModelEngineOptions& options,
                                                           int ranks_max);

  const EngineSpec& Spec() const override { return loaded_->spec; }
  std::span<const KvRegion> KvRegions() const override { return loaded_->regions; }

  // A step of this rank alone, on sequences of layout tp = 1.
  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override {
    return alone_->Step(sequences, progress, results);
  }

  absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                            StepProgress* progress, std::vector<SequenceResult>* results) override;

  // Longest sequence in a group of so many ranks, whose blocks hold more tokens than one rank's: at
  // least EngineSpec::max_positions.
  int MaxPositions(int ranks) const;
  // The largest power of two of ranks, up to ranks_max, that the model's heads can be dealt to; 1:
  // no group can run it. Smaller powers of two can.
  int GroupRanksMax() const;
  // Of the weights, so far.
  size_t views_made() const { return loaded_->slices.made(); }

 private:
  GroupEngine(std::shared_ptr<LoadedModel> loaded, int ranks_max);

  absl::StatusOr<ShardLayout> CheckPart(const GroupPart& part) const;
  absl::Status RunTogether(const GroupPart& part, const ShardLayout& layout,
                           std::span<const SequenceStep> sequences, StepProgress* progress,
                           std::vector<SequenceResult>& results);
  absl::Status Answer(std::span<const SequenceStep> sequences, GroupForward* forward,
                      std::vector<SequenceResult>& results);

  std::shared_ptr<LoadedModel> loaded_;
  std::unique_ptr<Engine> alone_;
  int ranks_max_;
  EngineSpec group_spec_;  // spec with the group's max_positions
  Samplers samplers_;
  Batch batch_;  // of the current step
  std::vector<LogitUse> logit_uses_;
};

}  // namespace skein::engine
