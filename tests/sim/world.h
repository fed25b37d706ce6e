// One run of a scenario: 1 router or more, 1 orchestrator or more, 2 prefill workers or more and 2
// to 8 decode workers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/formation_feeds.h"
#include "tests/sim/formation_watch.h"
#include "tests/sim/group_steps.h"
#include "tests/sim/joint_steps.h"
#include "tests/sim/network.h"
#include "tests/sim/orchestrator_process.h"
#include "tests/sim/router_process.h"
#include "tests/sim/scenario.h"
#include "tests/sim/store_process.h"
#include "tests/sim/transfers.h"
#include "tests/sim/worker_process.h"

namespace skein::sim {

struct Outcome {
  std::string violation;  // empty: none
  uint64_t trace_hash = 0;
  uint64_t actions = 0;
  TimeUs in_flight_us = 0;  // virtual time with a request in flight
  int64_t faults = 0;
  int64_t faults_met = 0;  // at a worker that held a request; elsewhere: while a client waited
  Coverage coverage;
  int64_t requests = 0;
  int64_t finished = 0;      // with a whole, right answer
  int64_t abandoned = 0;     // their router had died
  int64_t failed_alone = 0;  // with the error of its own sequence
  // Of each client, by serial: the longest time that it waited for its next token or the end.
  std::map<uint64_t, TimeUs> longest_waits;
  int64_t sp_plans = 0;
  int64_t joint_steps = 0;   // run to their end
  int64_t tensor_steps = 0;  // of these, with tp > 1
  int64_t joint_steps_broken = 0;
  int64_t parts_copied = 0;  // of KV that came through staging buffers
  int64_t resumed = 0;       // sequences that had been preempted
  int64_t engines_failed = 0;
  int64_t engine_failures_heard = 0;        // by the orchestrator
  int64_t deaths_after_engine_failure = 0;  // of the orchestrator
  int64_t drains_ordered = 0;               // by an operator, undone ones included
  int64_t router_drains = 0;                // of the router, which has heard of them
  int64_t moves = 0;  // of the last routers: attempts given up because their instance drains
  int64_t instances_lost = 0;  // taken for dead by the last orchestrator
  int64_t misses = 0;          // by the last orchestrator: instances that only routers heard
  // By the last orchestrator: how often an instance was suspect or set aside by its pace, and how
  // often requests left one whose step did not end.
  int64_t suspected = 0, set_aside = 0, hung = 0;
  int64_t paused = 0;  // how often tokens of a client were held back, since it did not read
  // Grants of decode blocks to requests that had some under a former plan.
  int64_t granted_again = 0;
  int64_t refused = 0;              // by the last orchestrator, for lack of capacity
  int64_t connections_refused = 0;  // by a FaultKind::kRefusal
  int64_t leaderships = 0;          // begun, where orchestrators elect a leader
  int64_t keepalives = 0;           // that ended a token stream which had fallen silent
  int64_t binds = 0, releases = 0;  // that ended as they should
  int64_t shares = 0, modes_changed = 0;
  int64_t switches_failed = 0;    // the others
  int64_t group_steps = 0;        // of bound groups, run to their end
  int64_t group_steps_in_sp = 0;  // of those
  int64_t group_steps_broken = 0;
  int64_t granted_to_groups = 0;   // prompts whose KV came to all ranks
  int64_t blocks_moved = 0;        // out of those that came with shared weights
  int64_t finished_in_groups = 0;  // of `finished`, those that fit no decode worker alone
  std::optional<FormationWatch::Struck> struck;  // what the scenario's PointedFault met
};

class World {
 public:
  World(Scenario scenario, bool print_trace);

  // Safety while things break; then the world heals: everything admitted must have ended, all
  // blocks be free everywhere, and new requests be served.
  Outcome Run();

 private:
  void ScheduleClients();
  void ScheduleFaults();
  void Strike(const Fault& fault);
  template <class Worker>
  void StrikeWorker(Worker& worker, const Fault& fault);
  template <class Worker>
  void Replace(Worker& worker, bool other_build);
  template <class Worker>
  void Order(Worker& worker, bool undo);
  template <class Worker>
  void UndoDrain(Worker& worker);
  void OrderRouter(int router, bool undo);
  void UndoRouterDrain(int router);
  template <class Worker>
  void Return(Worker& worker, TimeUs after);
  void Heal();
  void RunUntilServed(TimeUs from);
  void RunProbes(const std::vector<ClientPlan>& probes);
  void CheckProbes(const std::vector<ClientPlan>& probes);
  std::vector<scheduler::InstanceId> DecodeInstances() const;  // that are registered, by id
  void Act(const FormationAct& act);
  void RunAlone();
  Outcome Summary();
  Process* ProcessAt(int index);
  // The orchestrator that leads, or the first one.
  OrchestratorProcess& Leader() const;
  RouterProcess& RouterOf(const scheduler::RequestSpec& spec) const;
  RouterProcess& RouterAt(int index) const { return *routers_[sim::RouterAt(0) - index]; }
  int64_t Open() const;  // clients that have not got their answer
  template <class Worker>
  void NoteFault(const Worker& worker);
  void RunAction();
  bool Served() const;  // all ended, nothing held anywhere
  void CheckRest();
  RemoteMemory FindMemory(const std::string& description);

  Scenario scenario_;
  Random random_;
  VirtualTime time_;
  Trace trace_;
  Verdict verdict_;
  Network network_;
  Transfers transfers_;
  JointSteps joint_steps_;
  FormationWatch watch_;
  FormationFeeds feeds_;
  GroupSteps group_steps_;
  std::vector<ClientPlan> alone_probes_;  // come when all groups are released
  Departures departures_, abandoned_;
  std::vector<std::unique_ptr<RouterProcess>> routers_;
  CellRecord cell_;
  std::unique_ptr<StoreProcess> store_;  // null: there is one orchestrator
  std::vector<std::unique_ptr<OrchestratorProcess>> orchestrators_;
  std::vector<std::unique_ptr<PrefillProcess>> prefill_;
  std::vector<std::unique_ptr<DecodeProcess>> decode_;
  TimeUs in_flight_us_ = 0;
  int64_t faults_ = 0;
  int64_t faults_met_ = 0;
};

}  // namespace skein::sim
