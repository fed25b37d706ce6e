// StepLoop: the steps of one WorkerCore on its engine, one after the other: their numbers, what is
// in flight, how a step ended, probes of an idle engine, and when the engine has failed. Both
// WorkerCores have one; which sequences run, and what becomes of their results, is theirs.
//
// Launched ahead. While a step of requests of this instance alone runs, one more may be launched
// behind it, so that the engine never waits for the core: it begins when the first one ends. Steps
// end in their order. The engine takes a token that the first one samples as the input of the
// second by itself. What the core learns from the first one's end comes too late for the second:
// the core drops the second's token of a sequence that turned out to have ended, and gives blocks
// to others only when no step in flight has their sequence. A time of a step counts from the end of
// the one before it.
//
// The engine has failed when a whole step ends with an error that is not INVALID_ARGUMENT, when a
// step is overdue (engine_watch.h), or when a probe gives any error. Steps in a row that give
// nothing but NaN (nan_steps.h) are followed by a probe, which tells the engine from its requests;
// where probes are off they are a failure. A step of several instances that ends with UNAVAILABLE,
// DEADLINE_EXCEEDED or CANCELLED broke because of another instance: no failure of this engine. In
// each of these cases the requests end with UNAVAILABLE; only a status of its own says that a
// sequence is at fault.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/steps/engine_watch.h"
#include "scheduler/worker/steps/nan_steps.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

class StepLoop {
 public:
  struct Ended {
    std::vector<StepSequence> ran;  // empty for a probe
    bool of_group = false;          // of LaunchTogether
    // Of the whole step. With a failed engine it is what the sequences' requests end with.
    absl::Status status;
    TimeUs took_us = 0;
    std::vector<StepSequence>
        ahead;  // with a failed engine: of the step behind it, which ends, too
  };

  explicit StepLoop(const EngineWatchConfig& config) : engine_(config) {}

  const EngineWatch& engine() const { return engine_; }
  bool MayLaunch() const { return engine_.ok() && !engine_.stepping(); }
  // One step runs, and another one may be launched behind it.
  bool MayLaunchAhead() const;
  uint64_t number() const { return number_; }  // of the latest step
  uint64_t steps() const { return number_ - engine_.probes(); }

  bool doubtful() const { return doubtful_; }  // the next step should be a probe

  // REQUIRES: MayLaunch() or MayLaunchAhead(), and sequences.
  RunStep Launch(std::vector<StepSequence> sequences, TimeUs now);
  // A step of the bound group. Nothing is launched behind it.
  RunStep LaunchTogether(std::vector<StepSequence> sequences, StepMode mode, TimeUs deadline_us,
                         TimeUs now);
  std::optional<RunStep> Probe(TimeUs now);  // if one is due
  // The step in flight, of several instances, was aborted.
  void Abort(TimeUs now) { engine_.Abort(now); }

  // Empty: the event is not of the step that runs. The caller then looks whether engine().ok().
  std::optional<Ended> End(const StepDone& event, TimeUs now);
  // Tokens that an ended step computed.
  void AddTokens(int64_t tokens, TimeUs took_us);
  // Over recent steps: the quotient of exponential means, of weight 1/8, of their tokens and times.
  // (The ends of two steps may be handled one right after the other; the sum of their times is
  // right, but the second one's is nearly 0.) 0: nothing measured yet.
  double TokensPerSecond() const { return mean_us_ > 0 ? mean_tokens_ * kSecondUs / mean_us_ : 0; }
  // The same mean of their times, and how many AddTokens has counted.
  TimeUs MeanStepUs() const { return static_cast<TimeUs>(mean_us_); }
  int64_t measured() const { return measured_; }
  // Fails the engine for what happened between steps; gives the sequences in flight.
  std::vector<StepSequence> Fail(const absl::Status& status);
  // Fails the engine by its overdue step; gives the sequences in flight. REQUIRES: Overdue.
  std::vector<StepSequence> FailOverdue();

  // INTERNAL: what does not fit together.
  absl::Status CheckInvariants() const;

 private:
  void CountNan(const std::vector<StepResult>& results);
  RunStep Begin(RunStep step, TimeUs now);
  void Judge(const StepDone& event, TimeUs now, bool probe, bool joint, Ended* ended);
  std::vector<StepSequence> TakeInFlight();

  EngineWatch engine_;
  NanSteps nan_steps_;
  bool doubtful_ = false;
  std::deque<RunStep> in_flight_;  // of requests; the first one runs
  uint64_t number_ = 0;
  TimeUs started_us_ = 0;
  double mean_tokens_ = 0;  // of a step
  double mean_us_ = 0;
  int64_t measured_ = 0;
};

}  // namespace skein::scheduler
