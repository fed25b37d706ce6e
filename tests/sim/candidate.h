// A simulated orchestrator's part in the election of its cell's leader: drives ElectionCore as
// services/store/election.cc does, with the simulated store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "scheduler/election/election_core.h"
#include "tests/sim/network.h"
#include "tests/sim/store_process.h"

namespace skein::sim {

class Candidate {
 public:
  struct Hooks {
    std::function<void(uint64_t generation)> led;
    std::function<void()> lost;
  };

  // Of one life of the process: destroyed when it dies.
  Candidate(Network* network, Process* process, Hooks hooks);

  // Campaigning begins.
  void Start() { ReadStore(); }
  // The store tells that something has changed.
  void Take(const StoreNews& news);
  // By the process's clock, at this moment.
  bool Leads() const { return process_->LocalNow() < core_.LeadsUntil(); }
  // Where another one leads, as far as is known; empty: none does.
  const std::string& leader() const { return leader_; }
  // The leader hears nobody, and a standby somebody.
  void StepAside();
  void Heard();
  // A peer has seen a higher generation, and the leader took this one.
  void Raise(uint64_t generation);
  void ClockJumped();
  // It gives the leadership up. `ended` runs when the store knows, or could not be told.
  void Resign(std::function<void()> ended);

 private:
  void Handle(const scheduler::ElectionEvent::Any& event);
  void Arm();
  void ReadStore();

  template <class Call>
  void Do(const Call& call);
  void Do(const scheduler::ElectionEffect::Led& effect);
  void Do(const scheduler::ElectionEffect::Lost& effect);

  Network* network_;
  Process* process_;
  Hooks hooks_;
  scheduler::ElectionCore core_;
  std::function<void()> resigned_;  // to be told; null: it stands, or told it
  TimeUs armed_us_ = scheduler::kNever;
  std::string leader_;
  int64_t news_revision_ = 0;  // of leader_
};

}  // namespace skein::sim
