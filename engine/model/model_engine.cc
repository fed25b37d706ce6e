#include "engine/model/model_engine.h"

#include <utility>

#include "engine/model/forward/device_done.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/step_check.h"
#include "engine/model/forward/step_rows.h"
#include "engine/model/layers/layer_loop.h"
#include "engine/model/layers/local_feed_forward.h"
#include "engine/model/layers/plain_attention.h"
#include "engine/model/layers/sliced_weights.h"
#include "engine/model/loaded_model.h"
#include "engine/model/ring/ring_check.h"
#include "engine/model/ring/ring_step.h"
#include "engine/parallel/shard_layout.h"
#include "engine/sampling/samplers.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

class ModelEngine final : public Engine {
 public:
  explicit ModelEngine(std::shared_ptr<LoadedModel> loaded)
      : loaded_(std::move(loaded)),
        samplers_(loaded_->config.vocab_size, loaded_->ops->HostThreads()) {}

  const EngineSpec& Spec() const override { return loaded_->spec; }
  std::span<const KvRegion> KvRegions() const override { return loaded_->regions; }

  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override {
    const auto during_step = loaded_->DuringStep();
    if (sequences.size() == 1 && sequences.front().ring != nullptr) {
      results->assign(1, {});
      results->front().status =
          CheckRingStep(sequences.front(), loaded_->spec, loaded_->ring_limits);
      const absl::Status& refusal = results->front().status;
      if (!refusal.ok()) {
        AbortRefused(*sequences.front().ring, refusal);
        return absl::OkStatus();
      }
    } else {
      const absl::Status checked =
          CheckStep(sequences, loaded_->spec, loaded_->tokens_max, KvLayout{}, results);
      if (!checked.ok()) AbortRingStep(sequences, checked);
      if (!checked.ok() || !AnyRuns(*results)) return checked;
    }
    FillBatch(sequences, *results, &batch_, &logit_uses_);
    DeviceDone done(loaded_->device.get(), progress);
    return done.End(Run(sequences, done.Marks(), *results));
  }

  absl::Status StepTogether(const GroupPart& /*part*/, std::span<const SequenceStep> /*sequences*/,
                            StepProgress* /*progress*/,
                            std::vector<SequenceResult>* /*results*/) override {
    return absl::InvalidArgumentError(
        "mode: this engine has no buffers for steps of a group (GroupEngine has)");
  }

 private:
  absl::Status Run(std::span<const SequenceStep> sequences,
                   const std::function<void(int layer)>& layer_queued,
                   std::vector<SequenceResult>& results) {
    logits_there_ = 0;
    if (sequences.front().ring != nullptr) {
      const absl::Status ran = RunRingStep(sequences.front(), layer_queued);
      if (!ran.ok()) return ran;
    } else if (layer_queued || !RunDecode()) {
      const absl::Status ran = RunAlone(layer_queued);
      if (!ran.ok()) return ran;
    }
    return Answer(sequences, results);
  }

  // From the logits to the results.
  absl::Status Answer(std::span<const SequenceStep> sequences,
                      std::vector<SequenceResult>& results) {
    TokenSampler* on_device = loaded_->token_sampler.get();
    if (on_device != nullptr && TakesAll(*on_device, sequences, results)) {
      return SampleOnDevice(
          sequences, logit_uses_,
          [this](int64_t first, int64_t count) { return DeviceLogits(first, count); },
          loaded_->state.logits.rows, *on_device, results);
    }
    return UseLogits(
        sequences, logit_uses_,
        [this](int64_t first, int64_t count) {
          return loaded_->OnHost(DeviceLogits(first, count));
        },
        loaded_->state.logits.rows, samplers_, results);
  }

  absl::Status RunAlone(const std::function<void(int layer)>& layer_queued) {
    PlainAttention attention(&loaded_->model, &batch_, &loaded_->state);
    if (loaded_->sharing != nullptr && loaded_->sharing->shares()) {
      SharedFeedForward shared = loaded_->sharing->FeedForward(&loaded_->state);
      return RunLayers({attention, shared, *loaded_->source}, loaded_->config.num_layers,
                       layer_queued);
    }
    LocalFeedForward feed_forward(&loaded_->model, &loaded_->state);
    return RunLayers({attention, feed_forward, *loaded_->source}, loaded_->config.num_layers,
                     layer_queued);
  }

  absl::Status RunRingStep(const SequenceStep& sequence,
                           const std::function<void(int layer)>& layer_queued) {
    RingRunner& runner = *loaded_->ring;
    runner.Agree(sequence);
    runner.Place(sequence, &batch_);
    return runner.Run(loaded_->model, SlicesFor(*sequence.ring), *sequence.ring, batch_,
                      layer_queued, loaded_->state);
  }

  // Null where the ranks do not share the dense part.
  WeightSource* SlicesFor(const RingStep& step) {
    if (!loaded_->ring->Shares(step)) return nullptr;
    const auto layout =
        MakeShardLayout(ShapeOf(loaded_->config), {1, step.tp}, step.tensor->Rank());
    SKEIN_CHECK(layout.ok());  // Shares
    return &loaded_->slices.Of(*layout);
  }

  // Whether the step was one for the decode runner, which ran it, up to the logits if there is room
  // for all of them.
  bool RunDecode() {
    DecodeRunner* runner = loaded_->decode_runner.get();
    if (runner == nullptr || batch_.logit_rows.size() != batch_.ids.size()) return false;
    const int64_t rows = runner->RowsFor(batch_.sequences);
    if (rows == 0) return false;
    batch_.padding = rows - batch_.tokens();
    batch_.ids.resize(static_cast<size_t>(rows), 0);
    batch_.positions.resize(static_cast<size_t>(rows), 0);
    const bool to_logits = rows <= loaded_->state.logits.rows;
    runner->Run(batch_.ids, batch_.positions, batch_.sequences, [this, rows, to_logits] {
      SKEIN_CHECK(RunAlone(nullptr).ok());  // its weights are here, and it has no collective
      if (to_logits) ComputeLogits(loaded_->model, 0, rows, loaded_->state);
    });
    if (to_logits) logits_there_ = rows;
    return true;
  }

  ConstMatrix DeviceLogits(int64_t first, int64_t count) {
    if (first == 0 && count <= logits_there_) return FirstRows(loaded_->state.logits, count);
    ComputeLogits(loaded_->model, first, count, loaded_->state);
    return FirstRows(loaded_->state.logits, count);
  }

  std::shared_ptr<LoadedModel> loaded_;
  Samplers samplers_;
  Batch batch_;                       // of the current step
  std::vector<LogitUse> logit_uses_;  // of each of batch_.logit_rows
  int64_t logits_there_ = 0;          // of the batch's first rows, in the state
};

}  // namespace

std::unique_ptr<Engine> MakeModelEngine(std::shared_ptr<LoadedModel> model) {
  return std::make_unique<ModelEngine>(std::move(model));
}

absl::StatusOr<std::unique_ptr<Engine>> MakeModelEngine(const std::string& model_dir,
                                                        std::unique_ptr<Ops> ops,
                                                        std::unique_ptr<Device> device,
                                                        const ModelEngineOptions& options) {
  absl::StatusOr<std::unique_ptr<LoadedModel>> loaded =
      LoadModel(model_dir, std::move(ops), std::move(device), options);
  if (!loaded.ok()) return loaded.status();
  return MakeModelEngine(std::shared_ptr<LoadedModel>(*std::move(loaded)));
}

}  // namespace skein::engine
