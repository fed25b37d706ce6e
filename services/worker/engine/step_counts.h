// StepCounts: the steps that an instance has completed, and the tokens it ran in them, by mode and
// by the instances that ran them together:
//
//   own     the instance alone, with its own batch
//   ring    prefill instances, with a prompt dealt among them
//   ring_tp the same, of a chunk with tp > 1: neighbours compute the dense part together
//   tp      the ranks of a bound group, in tensor parallelism
//   sp      the same, in sequence parallelism
//   sp_tp   the same, in both
//
// A step that failed as a whole, or of which the engine ran no sequence, is not counted, nor are
// probes. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/steps/step.h"

namespace skein::services {

struct StepTotals {
  std::string mode;
  int ranks = 1;
  uint64_t steps = 0;
  // Own steps and those of groups: of the whole batch, which is the same at every rank. Ring steps:
  // of this instance's share.
  uint64_t tokens = 0;
  bool operator==(const StepTotals&) const = default;
};

class StepCounts {
 public:
  // A step that has completed.
  void Add(const scheduler::RunStep& step);
  // The same, of a bound group. Mode own does not count here: its steps are of each instance alone.
  void Add(const scheduler::GroupStep& step);

  // By mode and ranks; "own" always is there.
  std::vector<StepTotals> Totals() const;

 private:
  struct Sum {
    uint64_t steps = 0;
    uint64_t tokens = 0;
  };

  void AddOfGroup(scheduler::StepMode mode, const std::vector<scheduler::StepSequence>& sequences);
  void Add(const char* mode, size_t ranks, const std::vector<scheduler::StepSequence>& sequences);

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, Sum> sums_ = {{{"own", 1}, {}}};  // by mode and ranks
};

}  // namespace skein::services
