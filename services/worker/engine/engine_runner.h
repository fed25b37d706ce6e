// EngineRunner: the thread that runs a core's steps on an Engine, one at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "scheduler/worker/steps/step.h"
#include "services/worker/engine/ring_groups.h"
#include "services/worker/engine/step_log.h"

namespace skein::services {

class EngineRunner {
 public:
  // Called on the engine's thread when a layer's KV of the step's sequences is written; must not
  // block. May be empty.
  using LayerDone = std::function<void(const scheduler::RunStep& step, int layer)>;
  // Called on the engine's thread at the end of each step.
  using Done = std::function<void(scheduler::StepDone)>;

  // `engine`, `log` and `groups`, where there are any, outlive the runner. Without groups ring
  // steps are INVALID_ARGUMENT.
  EngineRunner(engine::Engine* engine, LayerDone layer_done, Done done, StepLog* log = nullptr,
               RingGroups* groups = nullptr);
  ~EngineRunner();  // waits for the step in flight

  // Hands a step over. REQUIRES: none is in flight.
  void Run(scheduler::RunStep step);

 private:
  void Loop();
  scheduler::StepDone Execute(const scheduler::RunStep& step);
  absl::Status Step(const scheduler::RunStep& step,
                    const std::vector<engine::SequenceStep>& sequences);
  absl::Status StepTogether(const scheduler::RunStep& step, engine::SequenceStep sequence);
  std::shared_ptr<const engine::SamplingParams> SamplingOf(const scheduler::RequestSpec& spec);

  engine::Engine* const engine_;
  const LayerDone layer_done_;
  const Done done_;
  StepLog* const log_;
  RingGroups* const groups_;

  std::mutex mu_;
  std::condition_variable wake_;
  std::optional<scheduler::RunStep> next_;
  bool stopping_ = false;

  // Only on the engine's thread.
  std::map<scheduler::RequestId, std::shared_ptr<const engine::SamplingParams>> sampling_;
  std::vector<engine::SequenceResult> results_;

  std::thread thread_;
};

}  // namespace skein::services
