#include "engine/model/group/group_engine.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "engine/model/forward/device_done.h"
#include "engine/model/forward/step_check.h"
#include "engine/model/group/step_agreement.h"
#include "engine/model/layers/sliced_weights.h"

namespace skein::engine {
namespace {

absl::Status Bad(const std::string& field, int value, const std::string& range) {
  return absl::InvalidArgumentError(field + " = " + std::to_string(value) + ": must be " + range);
}

// The communicator of one dimension is there, of its size, and this rank's place in it is right.
absl::Status CheckGroup(const char* name, const Communicator* comm, int size, int rank) {
  if (comm == nullptr) return absl::InvalidArgumentError(std::string(name) + ": missing");
  if (comm->Size() != size) {
    return Bad(std::string(name) + ".size", comm->Size(), std::to_string(size));
  }
  if (comm->Rank() != rank) {
    return Bad(std::string(name) + ".rank", comm->Rank(), std::to_string(rank));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupEngine>> GroupEngine::Make(const std::string& model_dir,
                                                               std::unique_ptr<Ops> ops,
                                                               std::unique_ptr<Device> device,
                                                               const ModelEngineOptions& options,
                                                               int ranks_max) {
  if (ranks_max < 2 || ranks_max > 4096) return Bad("ranks_max", ranks_max, "from 2 to 4096");
  // Its slices are views of whole layers.
  if (options.feed_forward.has_value()) {
    return absl::InvalidArgumentError("feed_forward: not for an engine of a group");
  }
  absl::StatusOr<std::unique_ptr<LoadedModel>> loaded =
      LoadModel(model_dir, std::move(ops), std::move(device), options, ranks_max);
  if (!loaded.ok()) return loaded.status();
  return std::unique_ptr<GroupEngine>(new GroupEngine(*std::move(loaded), ranks_max));
}

GroupEngine::GroupEngine(std::shared_ptr<LoadedModel> loaded, int ranks_max)
    : loaded_(std::move(loaded)),
      alone_(MakeModelEngine(loaded_)),
      ranks_max_(ranks_max),
      group_spec_(loaded_->spec),
      samplers_(loaded_->config.vocab_size, loaded_->ops->HostThreads()) {
  loaded_->slices.Make(GroupRanksMax());
}

int GroupEngine::MaxPositions(int ranks) const {
  const EngineSpec& spec = loaded_->spec;
  return static_cast<int>(std::min<int64_t>(
      loaded_->config.max_positions, spec.own_blocks() * TokensPerBlock(KvLayout{ranks}, spec.kv)));
}

absl::StatusOr<ShardLayout> GroupEngine::CheckPart(const GroupPart& part) const {
  if (part.all == nullptr) return absl::InvalidArgumentError("all: missing");
  const int ranks = part.all->Size();
  if (ranks < 2 || ranks > ranks_max_) {
    return Bad("all.size", ranks, "from 2 to " + std::to_string(ranks_max_));
  }
  absl::StatusOr<ShardLayout> layout =
      MakeShardLayout(ShapeOf(loaded_->config), part.mode, part.all->Rank());
  if (!layout.ok()) return layout;
  absl::Status status = CheckGroup("all", part.all, part.mode.ranks(), layout->rank);
  if (status.ok() && part.mode.sp > 1) {
    status = CheckGroup("sp", part.sp, part.mode.sp, layout->sp_rank);
  }
  if (status.ok() && part.mode.tp > 1) {
    status = CheckGroup("tp", part.tp, part.mode.tp, layout->tp_rank);
  }
  if (!status.ok()) return status;
  return layout;
}

absl::Status GroupEngine::StepTogether(const GroupPart& part,
                                       std::span<const SequenceStep> sequences,
                                       StepProgress* progress,
                                       std::vector<SequenceResult>* results) {
  const absl::StatusOr<ShardLayout> layout = CheckPart(part);
  if (!layout.ok()) return layout.status();
  const auto during_step = loaded_->DuringStep();
  if (loaded_->sharing != nullptr && loaded_->sharing->shares()) {
    return absl::InvalidArgumentError("mode: its weights are shared, so it has no slices of them");
  }
  const int ranks = part.all->Size();
  group_spec_.max_positions = MaxPositions(ranks);
  absl::Status status =
      CheckStep(sequences, group_spec_, loaded_->tokens_max, KvLayout{ranks}, results);
  if (status.ok()) {
    status = AgreeOnStep(part, sequences, *results, loaded_->spec,
                         loaded_->ops->KeySegment(loaded_->spec.kv.block_tokens));
  }
  if (!status.ok() || !AnyRuns(*results)) return status;
  return RunTogether(part, *layout, sequences, progress, *results);
}

int GroupEngine::GroupRanksMax() const {
  int most = 1;
  while (most * 2 <= ranks_max_ &&
         MakeShardLayout(ShapeOf(loaded_->config), {1, most * 2}, 0).ok()) {
    most *= 2;
  }
  return most;
}

absl::Status GroupEngine::RunTogether(const GroupPart& part, const ShardLayout& layout,
                                      std::span<const SequenceStep> sequences,
                                      StepProgress* progress,
                                      std::vector<SequenceResult>& results) {
  FillBatch(sequences, results, &batch_, &logit_uses_);
  GroupForward forward(loaded_.get(), &loaded_->slices.Of(layout), part, layout);
  DeviceDone done(loaded_->device.get(), progress);
  const absl::Status ran = StepError(forward.RunLayers(batch_, done.Marks()));
  if (!ran.ok()) {
    AbortGroup(part, ran);
    return done.End(ran);
  }
  absl::Status used = Answer(sequences, &forward, results);
  if (used.ok() && !loaded_->device->IsHost()) used = MeetAtStepEnd(part);
  if (!used.ok()) AbortGroup(part, used);
  return done.End(used);
}

// From the logits to the results. Every rank asks for the same rows in the same order, which is a
// collective, and samples the same bits, on its device where it can.
absl::Status GroupEngine::Answer(std::span<const SequenceStep> sequences, GroupForward* forward,
                                 std::vector<SequenceResult>& results) {
  const auto on_device = [forward](int64_t first, int64_t count) {
    return forward->Logits(first, count);
  };
  TokenSampler* const sampler = loaded_->token_sampler.get();
  if (sampler != nullptr && TakesAll(*sampler, sequences, results)) {
    return SampleOnDevice(sequences, logit_uses_, on_device, loaded_->state.logits.rows, *sampler,
                          results);
  }
  const auto on_host = [&](int64_t first, int64_t count) {
    absl::StatusOr<ConstMatrix> logits = on_device(first, count);
    return logits.ok() ? loaded_->OnHost(*logits) : logits;
  };
  return UseLogits(sequences, logit_uses_, on_host, loaded_->state.logits.rows, samplers_, results);
}

}  // namespace skein::engine
