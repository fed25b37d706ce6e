#include "scheduler/worker/worker_snapshot.h"

#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/steps/step_loop.h"

namespace skein::scheduler {

WorkerLoad LoadOf(const Membership& membership, const StepLoop& steps, const BlockCounts& blocks,
                  TimeUs now) {
  WorkerLoad load;
  load.free_blocks = blocks.free;
  load.held_blocks = blocks.held;
  load.cached_blocks = blocks.cached;
  load.total_blocks = blocks.total;
  load.tokens_per_second = steps.TokensPerSecond();
  load.draining = membership.draining();
  load.step_age_us = steps.engine().StepAgeUs(now);
  load.step_estimate_us = steps.engine().StepEstimateUs();
  load.mean_step_us = steps.MeanStepUs();
  load.steps = steps.measured();
  return load;
}

void Describe(const Membership& membership, const StepLoop& steps, const WorkerLoad& load,
              const BlockCounts& blocks, bool empty, TimeUs now, WorkerSnapshot* snapshot) {
  snapshot->registered = membership.registered();
  snapshot->draining = membership.draining();
  snapshot->stopping = membership.leaving();
  snapshot->drained = membership.draining() && empty && membership.drain_told();
  snapshot->orchestrator = membership.last_call();
  snapshot->engine = steps.engine().status();
  snapshot->instance = membership.instance();
  snapshot->load = load;
  snapshot->load.step_age_us = steps.engine().StepAgeUs(now);
  snapshot->blocks = blocks;
  snapshot->steps = steps.steps();
  snapshot->probes = steps.engine().probes();
}

}  // namespace skein::scheduler
