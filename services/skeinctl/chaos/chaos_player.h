// Plays a scenario: a load, a fault in its midst, the mending, and what clients saw of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/skeinctl/chaos/batch_load.h"
#include "services/skeinctl/chaos/chaos_load.h"
#include "services/skeinctl/chaos/chaos_target.h"
#include "services/skeinctl/chaos/handoff_load.h"
#include "services/skeinctl/chaos/judge.h"
#include "services/skeinctl/chaos/scenario.h"

namespace skein::services::chaos {

struct PlayOptions {
  int64_t streams = 1;  // those of the load
  int64_t probes = 4;   // new requests sent at the moment of a fault
  double stop_s = 4;    // between SIGSTOP and SIGCONT; so long a fault of the network lasts
  double restart_after_s = 1;
  double calm_s = 10;           // of the scenario without a fault
  double fault_every_s = 10;    // of the random one
  double duration_s = 3600;     // of the random one
  int64_t rounds = 1;           // of restart-each
  double whole_within_s = 120;  // all processes serve again after a fault
  uint64_t seed = 1;
  std::vector<std::string> spare;  // names or pids of processes that are not broken
  double stall_s = 0;              // judge.h
  TieJudge ties;                   // judge.h
};

// What brings a cluster to the moment at which a process is broken (scenario.h).
struct Moments {
  // Both block until it is done.
  std::function<absl::Status()> bind;
  std::function<absl::Status()> release;
  // FormationOrders::Switch
  std::function<absl::Status(bool bind, bool at_once,
                             const std::function<void(const std::string&)>& seen)>
      switch_formation;
  HandoffLoad* handoffs = nullptr;  // null: nobody tells of handoffs here
  BatchLoad* batch = nullptr;       // null: there is none
};

// The process to break: of the role, serving and reachable, not spared, with most requests; of
// equals the first. Of orchestrators the one that leads, if that is known; for the role "standby"
// one that does not. Null: none. Pure.
const ChaosProcess* VictimAmong(const std::vector<ChaosProcess>& processes, const std::string& role,
                                const std::vector<std::string>& spare);

class ChaosPlayer {
 public:
  // All outlive the player. `references[i]` is of request i. `told` gets a line for
  // each thing that is done.
  ChaosPlayer(ChaosTarget* target, ChaosLoad* load, std::vector<Reference> references,
              PlayOptions options, Moments moments, std::function<void(const std::string&)> told);

  // Only scenarios after this one use it.
  void SetStall(double stall_s) { options_.stall_s = stall_s; }

  // A row with `skipped` set if the scenario cannot be played here. ABORTED: a stop signal came;
  // what was broken is mended. Other errors: the cluster did not stream, could not be broken, or
  // did not become whole again.
  absl::StatusOr<Row> Play(const Scenario& scenario);

 private:
  absl::Status Run(const Scenario& scenario, Row* row);
  std::string WhySkipped(const Scenario& scenario) const;  // empty: it is played
  absl::Status BreakOne(const std::string& role, Fault fault, Row* row);
  absl::Status TakeAway(const std::string& role);
  absl::Status BringBack();  // what was taken away
  absl::Status BreakEach(Fault fault, Row* row);
  bool ClientsMayFail(Fault fault) const;  // when their router is broken so
  std::optional<RouterLoss> LossBy(const ChaosProcess& process, Fault fault) const;
  absl::Status BreakAtRandom();
  absl::Status BreakInASwitch(const Scenario& scenario, Row* row);
  absl::Status BreakInAHandoff(const Scenario& scenario, Row* row);
  absl::Status BreakInABatch(const Scenario& scenario, Row* row);
  absl::Status BreakAndMend(const ChaosProcess& process, Fault fault);
  absl::Status Break(const ChaosProcess& process, Fault fault);
  absl::Status AwaitStreams();
  absl::Status AwaitWhole();
  absl::Status AwaitProbes();
  absl::Status Wait(double seconds) const;

  ChaosTarget& target_;
  ChaosLoad& load_;
  const std::vector<Reference> references_;
  PlayOptions options_;
  const Moments moments_;
  const std::function<void(const std::string&)> told_;
  std::vector<ChaosProcess> whole_;  // before the scenario
  std::vector<FaultMark> marks_;
  std::optional<ChaosProcess> away_;  // taken away, and not yet brought back
};

}  // namespace skein::services::chaos
