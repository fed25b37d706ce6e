// Candidacy: this orchestrator's part in the election of its cell's leader (--store). It lets the
// shell lead and step down as the election says, and tells it who leads meanwhile.
//
// A leader that has lost its lease steps down at once and stands by again, in the same process: so
// no supervisor is needed, and peers find it where it was. It keeps nothing of what it led: the
// next leader rebuilds from workers and routers, and so does this one if it wins again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/orchestrator/options.h"
#include "services/orchestrator/orchestrator_shell.h"
#include "services/store/cluster_store.h"
#include "services/store/election.h"

namespace skein::services {

// INVALID_ARGUMENT: flags that do not go together, by name.
absl::Status CheckCandidacy(const OrchestratorOptions& options);

class Candidacy {
 public:
  // Opens the store; errors as the store's. REQUIRES --store other than none.
  static absl::StatusOr<std::unique_ptr<Candidacy>> Open(const OrchestratorOptions& options);
  ~Candidacy();  // End

  // Campaigns, for a shell that has started and stands by. `port`: of gRPC. Once.
  absl::Status Campaign(OrchestratorShell* shell, uint64_t incarnation, int port);
  // This leader hears none of its workers and routers: another one may lead (Election::StepAside).
  void StepAside();
  // One of them came while this process stands by.
  void Heard();
  // A clean end: the shell steps down, and then the store is told, so that another one leads at
  // once. Waits for the store at most a second; a failure is logged.
  void Resign();
  // From here on the shell is told nothing, and Leads is false. Without Resign before it is as the
  // process's death: the lease runs out. Before the shell is destroyed, and after all that asks it.
  void End();

  // Any thread. Whether this process leads at this moment.
  bool Leads() const;
  // Likewise: until it stops to lead, unless it renews its lease before; 0: it does not lead.
  double LeaseLeftS() const;
  // A peer has seen a higher generation, and the leader took this one. Does not wait.
  void Raise(uint64_t generation);

 private:
  Candidacy(const OrchestratorOptions& options, std::unique_ptr<ClusterStore> store);

  void Led(uint64_t generation);
  void Lost(const absl::Status& why);
  void LeaderIs(const std::optional<CellLeader>& leader);

  const OrchestratorOptions& options_;
  const std::unique_ptr<ClusterStore> store_;
  OrchestratorShell* shell_ = nullptr;
  // Set once, when election_ is there; the election's hooks wait for it.
  std::atomic<Election*> running_{nullptr};
  std::unique_ptr<Election> election_;
};

}  // namespace skein::services
