// PrefillSteps: what the engine of a prefill-worker runs next, a batch of plain prompts or a piece
// of an SP plan, and what it has computed. Part of PrefillCore, which takes the results.
//
// Plain prompts of a smaller sequence go before a piece, others only while no piece can run. A
// piece can run when it is its plan's turn (sp_plans.h) and its request computes.
//
// Plain prompts without a decode place only fill what placed ones leave of a step, and run only
// while no piece can: no request that has room at a decode instance waits for one that has none.
//
// Invariants (CheckInvariants): the step in flight is a batch or a piece, never both; those of the
// batch (BatchScheduler).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/worker/prefill/prefill_requests.h"
#include "scheduler/worker/prefill/sp_plans.h"
#include "scheduler/worker/steps/ring_step_limits.h"
#include "scheduler/worker/steps/step_loop.h"

namespace skein::scheduler {

class PrefillSteps {
 public:
  PrefillSteps(const BatchLimits& limits, const EngineWatchConfig& engine,
               const RingStepLimits& ring)
      : batch_(limits), loop_(engine), ring_(ring) {}

  // A plain prompt that computes from now on. REQUIRES: it is not known.
  void Add(const PrefillRequest& request);
  // Call when the request has got or lost its decode place. Ignored if it is in no further step.
  void Rank(const PrefillRequest& request) { batch_.PutLast(request.id(), !request.IsPlaced()); }
  // No further step with it. Unknown requests are fine. REQUIRES: !InFlight(id).
  void Remove(RequestId id) { batch_.Remove(id); }
  bool Has(RequestId id) const { return batch_.Has(id); }  // it is in the batch
  // Its place in the batch, if it has one there, is that of the last Rank.
  bool IsRanked(const PrefillRequest& request) const {
    return !batch_.HasPrompt(request.id()) || batch_.IsLast(request.id()) != request.IsPlaced();
  }
  bool InFlight(RequestId id) const { return batch_.InFlight(id) || piece_ == id; }

  // The next step, or a probe of the idle engine if one is due and `may_probe`; empty: nothing to
  // run, or a step is in flight.
  std::optional<RunStep> Next(const PrefillRequests& requests, SpPlans& sp_plans, bool may_probe,
                              TimeUs now);
  // If the step in flight is a piece of that request, it is to be aborted.
  std::optional<AbortStep> Abort(RequestId id, TimeUs now);
  // As StepLoop::End. The step is in flight no more.
  std::optional<StepLoop::Ended> End(const StepDone& event, TimeUs now);
  // Fails the engine by its overdue step, and gives that step's sequences. They count as in flight
  // until ForgetStep. REQUIRES: engine().Overdue.
  std::vector<StepSequence> FailOverdue() { return loop_.FailOverdue(); }
  void ForgetStep();

  const StepLoop& loop() const { return loop_; }
  const EngineWatch& engine() const { return loop_.engine(); }
  uint64_t prompt_tokens() const { return prompt_tokens_; }  // computed since the start
  // That had not to be computed again, because an attempt before had computed them
  // (kept_prompts.h).
  uint64_t kept_tokens() const { return kept_tokens_; }
  int64_t PendingPromptTokens() const { return batch_.PendingPromptTokens(); }  // of plain prompts
  absl::Status CheckInvariants() const;

 private:
  std::optional<RunStep> Probe(bool may_probe, TimeUs now);
  RunStep Enter(const PrefillRequest& request, SpPlan& plan, TimeUs now);
  void Count(const StepLoop::Ended& ended, const std::vector<StepResult>& results);

  BatchScheduler batch_;
  StepLoop loop_;
  const RingStepLimits ring_;
  std::optional<RequestId> piece_;  // whose piece is the step in flight
  uint64_t prompt_tokens_ = 0;
  uint64_t kept_tokens_ = 0;
};

}  // namespace skein::scheduler
