// StepLoop: the steps of one WorkerCore on its engine, one at a time: their numbers, what is in
// flight, how a step ended, probes of an idle engine, and when the engine has failed. Both
// WorkerCores have one; which sequences run, and what becomes of their results, is theirs.
//
// The engine has failed when a whole step ends with an error that is not INVALID_ARGUMENT, when a
// step is overdue (engine_watch.h), or when steps in a row give nothing but NaN (nan_steps.h). A
// step of several instances that ends with UNAVAILABLE, DEADLINE_EXCEEDED or CANCELLED broke for
// another instance's reasons: no failure of this engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/engine_watch.h"
#include "scheduler/worker/nan_steps.h"
#include "scheduler/worker/step.h"

namespace skein::scheduler {

class StepLoop {
 public:
  struct Ended {
    std::vector<StepSequence> ran;  // empty for a probe
    // Of the whole step. With a failed engine it is what the sequences' requests end with.
    absl::Status status;
    TimeUs took_us = 0;
  };

  explicit StepLoop(const EngineWatchConfig& config) : engine_(config) {}

  const EngineWatch& engine() const { return engine_; }
  bool MayLaunch() const { return engine_.ok() && !engine_.stepping(); }
  uint64_t number() const { return number_; }  // of the latest step
  uint64_t steps() const { return number_ - engine_.probes(); }

  // REQUIRES: MayLaunch(), and sequences.
  RunStep Launch(std::vector<StepSequence> sequences, TimeUs now);
  std::optional<RunStep> Probe(TimeUs now);  // if one is due

  // Empty: the event is not of the step in flight. The caller then looks whether engine().ok().
  std::optional<Ended> End(const StepDone& event, TimeUs now);
  // Fails the engine by its overdue step; gives that step's sequences. REQUIRES: Overdue.
  std::vector<StepSequence> FailOverdue();

 private:
  EngineWatch engine_;
  NanSteps nan_steps_;
  std::vector<StepSequence> in_flight_;
  uint64_t number_ = 0;
  TimeUs started_us_ = 0;
};

}  // namespace skein::scheduler
