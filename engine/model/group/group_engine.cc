#include "engine/model/group/group_engine.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "engine/model/forward/device_done.h"
#include "engine/model/forward/step_check.h"
#include "engine/model/group/agreement.h"
#include "engine/model/ring/ring_check.h"

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

// A digest of everything that decides the rows and their results, in one model and mode.
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

// No rank of the step's groups waits for one that has given up.
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
      samplers_(loaded_->config.vocab_size, loaded_->ops->HostThreads()) {}

int GroupEngine::MaxPositions(int ranks) const {
  const KvSpec& kv = loaded_->spec.kv;
  return static_cast<int>(std::min<int64_t>(loaded_->config.max_positions,
                                            kv.num_blocks * TokensPerBlock(KvLayout{ranks}, kv)));
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

absl::Status GroupEngine::Agree(const GroupPart& part, std::span<const SequenceStep> sequences,
                                std::vector<SequenceResult>& results) {
  Device* const device = loaded_->device.get();
  auto* const scratch = static_cast<std::byte*>(buffers_.send.data);
  const bool refuses = std::any_of(results.begin(), results.end(),
                                   [](const auto& result) { return !result.status.ok(); });
  const absl::StatusOr<bool> refusals =
      AgreeOn(DigestOf(part.mode, sequences, loaded_->spec), refuses, part, device, scratch);
  if (absl::IsFailedPrecondition(refusals.status())) return refusals.status();  // so say all ranks
  absl::Status status = refusals.status();
  if (status.ok() && *refusals) status = ShareRefusals(part, device, scratch, results);
  if (!status.ok()) AbortAll(part, status);
  return status;
}

absl::Status GroupEngine::StepTogether(const GroupPart& part,
                                       std::span<const SequenceStep> sequences,
                                       const std::function<void(int layer)>& layer_done,
                                       std::vector<SequenceResult>* results) {
  const absl::StatusOr<ShardLayout> layout = CheckPart(part);
  if (!layout.ok()) return layout.status();
  const int ranks = part.all->Size();
  group_spec_.max_positions = MaxPositions(ranks);
  absl::Status status =
      CheckStep(sequences, group_spec_, loaded_->tokens_max, KvLayout{ranks}, results);
  if (status.ok()) status = Agree(part, sequences, *results);
  if (!status.ok() || !AnyRuns(*results)) return status;
  return RunTogether(part, *layout, sequences, layer_done, *results);
}

WeightSource& GroupEngine::WeightsFor(const ShardLayout& layout) {
  const std::tuple key(layout.mode.sp, layout.mode.tp, layout.rank);
  return slices_.try_emplace(key, loaded_->weights, layout, loaded_->config.head_dim).first->second;
}

absl::Status GroupEngine::RunTogether(const GroupPart& part, const ShardLayout& layout,
                                      std::span<const SequenceStep> sequences,
                                      const std::function<void(int layer)>& layer_done,
                                      std::vector<SequenceResult>& results) {
  FillBatch(sequences, results, &batch_, &logit_uses_);
  GroupForward forward(loaded_.get(), &buffers_, &WeightsFor(layout), part, layout);
  DeviceDone done(loaded_->device.get());
  absl::Status ran = forward.RunLayers(batch_, done.Behind(layer_done));
  if (ran.ok()) ran = done.status();
  if (!ran.ok()) {
    AbortAll(part, ran);
    return done.End(ran);
  }
  const auto logits_of = [&](int64_t first, int64_t count) {
    absl::StatusOr<ConstMatrix> logits = forward.Logits(first, count);
    return logits.ok() ? loaded_->OnHost(*logits) : logits;
  };
  const absl::Status used =
      UseLogits(sequences, logit_uses_, logits_of, loaded_->state.logits.rows, samplers_, results);
  if (!used.ok()) AbortAll(part, used);
  return done.End(used);
}

}  // namespace skein::engine
