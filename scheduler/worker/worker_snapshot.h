// What both WorkerCores tell of themselves: the part of their snapshots and loads that does not
// depend on the role.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/block_pool.h"

namespace skein::scheduler {

class Membership;
class StepLoop;

struct WorkerSnapshot {
  bool registered = false;
  bool draining = false;
  bool stopping = false;      // it drains because its process ends
  bool drained = false;       // it drains, holds nothing, and the orchestrator knows all about it
  absl::Status orchestrator;  // of the latest call to it
  absl::Status engine;        // why it has failed
  InstanceId instance;
  WorkerLoad load;
  BlockCounts blocks;
  uint64_t steps = 0;   // without probes
  uint64_t probes = 0;  // of the idle engine
  uint64_t failed = 0;  // requests
};

// Without the requests and tokens that are queued or run.
WorkerLoad LoadOf(const Membership& membership, const StepLoop& steps, const BlockCounts& blocks,
                  TimeUs now);

// Fills `snapshot`, but for failed. `empty`: the core holds nothing.
void Describe(const Membership& membership, const StepLoop& steps, const WorkerLoad& load,
              const BlockCounts& blocks, bool empty, TimeUs now, WorkerSnapshot* snapshot);

}  // namespace skein::scheduler
