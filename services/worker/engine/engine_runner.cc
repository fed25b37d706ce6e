#include "services/worker/engine/engine_runner.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "services/worker/engine/sampling_codec.h"
#include "services/worker/engine/step_conversion.h"

namespace skein::services {
namespace {

constexpr size_t kSamplingCacheMax = 4096;

}  // namespace

EngineRunner::EngineRunner(engine::Engine* engine, LayerDone layer_done, Done done, StepLog* log,
                           RingGroups* groups)
    : engine_(engine),
      layer_done_(std::move(layer_done)),
      done_(std::move(done)),
      log_(log),
      groups_(groups),
      thread_([this] {
        pthread_setname_np(pthread_self(), "engine");
        Loop();
      }) {}

EngineRunner::~EngineRunner() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void EngineRunner::Run(scheduler::RunStep step) {
  {
    std::lock_guard lock(mu_);
    next_ = std::move(step);
  }
  wake_.notify_one();
}

void EngineRunner::Loop() {
  for (;;) {
    scheduler::RunStep step;
    {
      std::unique_lock lock(mu_);
      wake_.wait(lock, [this] { return stopping_ || next_.has_value(); });
      if (stopping_) return;
      step = *std::exchange(next_, std::nullopt);
    }
    done_(Execute(step));
  }
}

std::shared_ptr<const engine::SamplingParams> EngineRunner::SamplingOf(
    const scheduler::RequestSpec& spec) {
  if (sampling_.size() > kSamplingCacheMax) sampling_.clear();
  auto& cached = sampling_[spec.id];
  if (cached == nullptr) cached = std::make_shared<engine::SamplingParams>(SamplingFrom(spec));
  return cached;
}

absl::Status EngineRunner::Step(const scheduler::RunStep& step,
                                const std::vector<engine::SequenceStep>& sequences) {
  if (!layer_done_) return engine_->Step(sequences, nullptr, &results_);
  return engine_->Step(
      sequences, [&](int layer) { layer_done_(step, layer); }, &results_);
}

absl::Status EngineRunner::StepTogether(const scheduler::RunStep& step,
                                        engine::SequenceStep sequence) {
  if (groups_ == nullptr) {
    return absl::InvalidArgumentError("this worker steps with no others");
  }
  absl::StatusOr<engine::RingStep> ring = groups_->Enter(step.step, *step.sequences.front().ring);
  if (!ring.ok()) return ring.status();
  sequence.ring = &*ring;
  const absl::Status status = Step(step, {sequence});
  groups_->Leave(status);
  return status;
}

scheduler::StepDone EngineRunner::Execute(const scheduler::RunStep& step) {
  const StepInputs inputs(step,
                          [this](const scheduler::RequestSpec& spec) { return SamplingOf(spec); });
  const std::vector<engine::SequenceStep>& sequences = inputs.sequences();
  scheduler::StepDone done{.step = step.step};
  const auto started = std::chrono::steady_clock::now();
  const bool together = sequences.size() == 1 && step.sequences.front().ring != nullptr;
  done.status = together ? StepTogether(step, sequences.front()) : Step(step, sequences);
  if (!done.status.ok()) return done;
  if (log_ != nullptr) {
    log_->Add(step,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    done.results.push_back(ResultOf(step.sequences[i], results_[i]));
  }
  return done;
}

}  // namespace skein::services
