#include "engine/model/group_engine.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "engine/model/agreement.h"
#include "engine/model/device_done.h"
#include "engine/model/group_weights.h"
#include "engine/model/step_check.h"

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

// Of what decides the rows and what is wanted of them, in one model and mode.
uint64_t DigestOf(GroupMode mode, std::span<const SequenceStep> sequences, const EngineSpec& spec) {
  Digest digest(spec.model_hash);
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

// All ranks were given the same step: else what they add up is nothing. `scratch` as GatherValues'.
absl::Status AgreeOn(uint64_t digest, const GroupPart& part, Device* device, void* scratch) {
  const absl::StatusOr<std::vector<uint64_t>> digests =
      GatherValues(part.all, device, {&digest, 1}, static_cast<std::byte*>(scratch), part.deadline);
  if (!digests.ok()) return digests.status();
  for (size_t rank = 1; rank < digests->size(); ++rank) {
    if ((*digests)[rank] == digests->front()) continue;
    return absl::FailedPreconditionError("rank " + std::to_string(rank) +
                                         " was given another model, mode or step than rank 0");
  }
  return absl::OkStatus();
}

// Nobody of the step's groups waits for a rank that has given up.
void AbortAll(const GroupPart& part, const absl::Status& reason) {
  for (Communicator* comm :
       {part.all, part.mode.sp > 1 ? part.sp : nullptr, part.mode.tp > 1 ? part.tp : nullptr}) {
    if (comm != nullptr) comm->Abort(reason);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupEngine>> GroupEngine::Make(const std::string& model_dir,
                                                               std::unique_ptr<Ops> ops,
                                                               std::unique_ptr<Device> device,
                                                               const ModelEngineOptions& options,
                                                               int ranks_max) {
  if (ranks_max < 2 || ranks_max > 4096) return Bad("ranks_max", ranks_max, "from 2 to 4096");
  absl::StatusOr<std::unique_ptr<LoadedModel>> loaded =
      LoadModel(model_dir, std::move(ops), std::move(device), options, ranks_max);
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<GroupBuffers> buffers = AllocateGroupBuffers(**loaded, ranks_max);
  if (!buffers.ok()) return buffers.status();
  return std::unique_ptr<GroupEngine>(
      new GroupEngine(*std::move(loaded), *std::move(buffers), ranks_max));
}

GroupEngine::GroupEngine(std::shared_ptr<LoadedModel> loaded, GroupBuffers buffers, int ranks_max)
    : loaded_(std::move(loaded)),
      alone_(MakeModelEngine(loaded_)),
      buffers_(std::move(buffers)),
      ranks_max_(ranks_max),
      group_spec_(loaded_->spec),
      sampler_(loaded_->config.vocab_size) {}

int GroupEngine::MaxPositions(int ranks) const {
  const KvSpec& kv = loaded_->spec.kv;
  return static_cast<int>(std::min<int64_t>(loaded_->config.max_positions,
                                            kv.num_blocks * KvLayout{ranks}.TokensPerBlock(kv)));
}

absl::StatusOr<ShardLayout> GroupEngine::CheckPart(const GroupPart& part,
                                                   std::span<const SequenceStep> sequences) {
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
  group_spec_.max_positions = MaxPositions(ranks);
  status = CheckStep(sequences, group_spec_, loaded_->tokens_max, KvLayout{ranks});
  if (!status.ok()) return status;
  return layout;
}

absl::Status GroupEngine::StepTogether(const GroupPart& part,
                                       std::span<const SequenceStep> sequences,
                                       const std::function<void(int layer)>& layer_done,
                                       std::vector<SequenceResult>* results) {
  const absl::StatusOr<ShardLayout> layout = CheckPart(part, sequences);
  if (!layout.ok()) return layout.status();
  FillBatch(sequences, &batch_, &logit_uses_);
  const absl::Status agreed = AgreeOn(DigestOf(part.mode, sequences, loaded_->spec), part,
                                      loaded_->device.get(), buffers_.send.data);
  if (absl::IsFailedPrecondition(agreed)) return agreed;  // so say all ranks
  if (!agreed.ok()) {
    AbortAll(part, agreed);
    return agreed;
  }
  GroupForward forward(loaded_.get(), &buffers_, part, *layout);
  DeviceDone done(loaded_->device.get());
  absl::Status ran = forward.RunLayers(batch_, done.Behind(layer_done));
  if (ran.ok()) ran = done.status();
  if (!ran.ok()) {
    AbortAll(part, ran);
    return done.End(ran);
  }
  absl::Status gathered;
  const auto logits_of = [&](int64_t first, int64_t count) {
    absl::StatusOr<ConstMatrix> logits = forward.Logits(first, count);
    gathered = logits.status();
    return logits.ok() ? loaded_->OnHost(*logits) : logits;
  };
  const absl::Status used =
      UseLogits(sequences, logit_uses_, logits_of, loaded_->state.logits.rows, sampler_, *results);
  if (!gathered.ok()) AbortAll(part, gathered);
  return done.End(used);
}

}  // namespace skein::engine
