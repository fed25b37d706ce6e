// RingGroups: carries out, in a simulated prefill worker, what the shipped scheduler::RingSteps
// decides, as services/worker/engine/ring_groups.h does in a real one. A step is entered, and its
// end reported to the core, after short random delays, so aborts can come in between. The groups
// are those of JointSteps.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "scheduler/worker/steps/ring_steps.h"
#include "tests/sim/joint_steps.h"
#include "tests/sim/network.h"

namespace skein::sim {

// Of one incarnation of `process`.
class RingGroups {
 public:
  RingGroups(Network* network, Process* process, JointSteps* joint_steps, Verdict* verdict)
      : network_(network), process_(process), joint_steps_(joint_steps), verdict_(verdict) {}

  // Runs the entrant's step; its `done` is called at the end.
  void Run(JointSteps::Entrant entrant);
  void Abort(uint64_t step);
  void Break(const scheduler::BreakGroup& group);
  void Stop();

 private:
  void Enter(JointSteps::Entrant entrant);
  void Take(const scheduler::RingSteps::Effects& effects);
  void Execute(const scheduler::OpenRing& effect);
  void Execute(const scheduler::CloseRing& effect);
  void Execute(const scheduler::AbortRing& effect);
  void Execute(const scheduler::RefuseRing& effect);
  TimeUs Moment() { return network_->random().Between(0, 300); }

  Network* network_;
  Process* process_;
  JointSteps* joint_steps_;
  Verdict* verdict_;
  scheduler::RingSteps steps_;
};

}  // namespace skein::sim
