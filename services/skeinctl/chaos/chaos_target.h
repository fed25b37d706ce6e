// A cluster whose processes can be broken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/skeinctl/chaos/scenario.h"

namespace skein::services::chaos {

struct ChaosProcess {
  std::string name;      // unique in its cluster: "decode-1"
  std::string role;      // "prefill", "decode", "orchestrator" or "router"
  std::string endpoint;  // HOST:PORT of its clients, of a router; else empty
  bool leads = false;    // an orchestrator that is known to lead
  int64_t pid = 0;       // 0: not on this host
  int64_t running = 0;   // requests that it works on, as far as is known
  bool serving = false;
  bool reachable = true;  // this target can break it
};

// Used by one thread. Calls block until the cluster, or the tool that reaches it, has answered.
class ChaosTarget {
 public:
  virtual ~ChaosTarget() = default;

  // Of all roles, in the order of their names. UNAVAILABLE: the cluster does not answer, as while
  // its orchestrator is down.
  virtual absl::StatusOr<std::vector<ChaosProcess>> Processes() = 0;

  // UNIMPLEMENTED says why no process of this cluster can be broken so.
  virtual absl::Status Allows(Fault fault) const = 0;

  // UNIMPLEMENTED says what starts ended processes again before Restart is called.
  virtual absl::Status AllowsAbsence() const = 0;

  // Returns as soon as the order was given. FAILED_PRECONDITION or PERMISSION_DENIED: it was not.
  virtual absl::Status Break(const ChaosProcess& process, Fault fault) = 0;

  // kTerm: waits until the process has ended. kStop: lets it go on. DEADLINE_EXCEEDED: it still
  // runs.
  virtual absl::Status End(const ChaosProcess& process, Fault fault) = 0;

  // Starts it again after kKill or kTerm, unless something else does.
  virtual absl::Status Restart(const ChaosProcess& process) = 0;

  virtual std::string Describe() const = 0;  // "local processes"
};

}  // namespace skein::services::chaos
