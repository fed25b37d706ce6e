// PlanNumbers: the orchestrator's generation, and the epochs and plan sequences that begin with it
// and only grow. Part of OrchestratorCore.
#pragma once

#include <cstdint>

#include "scheduler/base/ids.h"

namespace skein::scheduler::orchestrator {

class PlanNumbers {
 public:
  explicit PlanNumbers(uint64_t generation) { Begin(generation); }

  // REQUIRES a generation above that of now. Plan sequences continue above a predecessor's, too:
  // workers order its requests with ours.
  void Begin(uint64_t generation) {
    generation_ = generation;
    first_epoch_ = FirstNumberOf(generation);
    last_epoch_ = last_sequence_ = first_epoch_ - 1;
  }
  uint64_t generation() const { return generation_; }
  uint64_t first_epoch() const { return first_epoch_; }  // another generation's are below it
  Epoch last_epoch() const { return {last_epoch_}; }
  Epoch NextEpoch() { return {++last_epoch_}; }
  PlanSequence NextSequence() { return {++last_sequence_}; }

 private:
  uint64_t generation_ = 0;
  uint64_t first_epoch_ = 0;
  uint64_t last_epoch_ = 0;
  uint64_t last_sequence_ = 0;
};

}  // namespace skein::scheduler::orchestrator
