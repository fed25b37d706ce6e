// A cluster whose processes run on this host: broken by signals.
//
// The orchestrator tells instances and routers with host and pid; itself it is found by its port.
// Processes on other hosts are listed and left alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/orchestrator.pb.h"
#include "services/skeinctl/chaos/chaos_target.h"
#include "services/skeinctl/chaos/local_process.h"
#include "services/skeinctl/chaos/network_impairment.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/cluster/cluster_view.h"

namespace skein::services::chaos {

struct LocalOptions {
  // Something else starts processes that ended, such as systemd or skein-node.
  bool restarts_itself = false;
  // A program that starts the process whose name is its argument, as deploy/local/restart does.
  // Empty: a process of deploy/local/up is started again by the program that `up` left for it,
  // any other one by its own command line.
  std::string restart_with;
};

// A process that deploy/local/up has started: its name there, and the program that starts it again
// when it gets that name.
struct UpProcess {
  std::string name;
  std::string restart;
};
// By SKEIN_UP="NAME RUN_DIR" of its environment; nullopt: `up` has not started it.
std::optional<UpProcess> StartedByUp(const std::vector<std::string>& environment);

// The instances and routers of a status, sorted by name. `host`: this host's name.
std::vector<ChaosProcess> ProcessesOf(const v1::StatusResponse& status, const ProcessNames& names,
                                      const std::string& host);

// Whether a process with these arguments may be one of this role: a pid may belong to another
// process by now.
bool MayHaveRole(const std::vector<std::string>& arguments, const std::string& role);

class LocalTarget final : public ChaosTarget {
 public:
  // `orchestrator`: HOST:PORT, or those of one cell, "HOST:PORT+HOST:PORT". `names`: from
  // deploy/local/up, asked anew after each restart.
  LocalTarget(std::string orchestrator, LocalOptions options, std::function<ProcessNames()> names);

  absl::StatusOr<std::vector<ChaosProcess>> Processes() override;
  absl::Status Allows(Fault fault) const override;
  absl::Status AllowsAbsence() const override;
  absl::Status Break(const ChaosProcess& process, Fault fault) override;
  absl::Status End(const ChaosProcess& process, Fault fault) override;
  absl::Status Restart(const ChaosProcess& process) override;
  std::string Describe() const override { return "local processes"; }

 private:
  absl::Status Impair(const ChaosProcess& process, Fault fault);

  const std::string orchestrator_;
  const LocalOptions options_;
  const std::function<ProcessNames()> names_;
  const std::string host_;
  std::map<std::string, uint16_t> ports_;           // of routers and the orchestrator, by name
  std::map<std::string, ProcessCommand> commands_;  // of processes that were broken, by name
  std::unique_ptr<NetworkImpairment> impairment_;   // null: the network is whole
};

}  // namespace skein::services::chaos
