// Shared by the commands that talk to a running cluster: finding it, calls with a deadline, errors
// and exit codes.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/jobs.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/flags/flags.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "services/rpc/rpc.h"
#include "services/skeinctl/cluster/local_cluster.h"
#include "services/skeinctl/exit_codes.h"

namespace skein::services {

// `flag` if given, else the cluster that deploy/local/up started. UNAVAILABLE: that cluster's
// orchestrator is gone. INVALID_ARGUMENT: no cluster; the message says which flag to give.
absl::StatusOr<std::string> FindOrchestrator(const std::string& flag,
                                             const Environment& environment);

class ClusterClient {
 public:
  // `orchestrator`: as CellOrchestrators takes it. Of several, the one that leads is asked. While
  // none does, a call waits for it, as long as it may take.
  explicit ClusterClient(std::string orchestrator);

  const std::string& orchestrator() const { return orchestrator_; }
  // After a call that an orchestrator has answered: its address, as given or as a standby named it.
  std::string answered_by() const { return orchestrators_.Current(); }
  // UNAVAILABLE, with its address: the orchestrator does not answer. Other codes are the
  // orchestrator's.
  absl::StatusOr<v1::StatusResponse> Status();
  absl::StatusOr<v1::ExplainResponse> Explain(const std::string& request);
  absl::StatusOr<v1::ListRequestsResponse> Requests(const v1::ListRequestsRequest& request);
  absl::Status Drain(const v1::DrainRequest& request);
  absl::StatusOr<v1::ListGroupsResponse> Groups();
  // Waits until the switches have ended. DEADLINE_EXCEEDED: they had not after `wait`; they go on.
  absl::StatusOr<v1::ChangeFormationResponse> ChangeFormation(
      const v1::ChangeFormationRequest& request, std::chrono::milliseconds wait);

  absl::StatusOr<v1::ListJobsResponse> Jobs(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::JobStatus> Job(const std::string& id);
  absl::StatusOr<v1::JobStatus> CancelJob(const std::string& id);

 private:
  template <typename Service = v1::Orchestrator, typename Method, typename Request,
            typename Response>
  absl::Status Call(Method method, const Request& request, Response* response);
  template <typename Service = v1::Orchestrator, typename Method, typename Request,
            typename Response>
  grpc::Status CallWithin(std::chrono::milliseconds time, std::chrono::milliseconds once,
                          Method method, const Request& request, Response* response);
  template <typename Service = v1::Orchestrator, typename Method, typename Request,
            typename Response>
  grpc::Status CallOnce(const std::string& orchestrator, std::chrono::milliseconds time,
                        Method method, const Request& request, Response* response);
  absl::Status Silent(const grpc::Status& status) const;

  const std::string orchestrator_;
  Channels channels_;
  CellOrchestrators orchestrators_;
};

// Registers --orchestrator for commands that use FindOrchestrator. *target is empty.
void RegisterCluster(std::string* target, FlagSet* set);
// Registers --format with two values; *target is the default.
void RegisterFormat(std::string* target, const char* text, FlagSet* set);
// Prints a command's error; returns the exit code.
int EndWith(const char* command, const absl::Status& error);

}  // namespace skein::services
