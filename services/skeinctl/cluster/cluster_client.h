// What the commands that talk to a running cluster share: where it is, calls with a deadline,
// errors and exit codes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/flags/flags.h"
#include "services/rpc/rpc.h"
#include "services/skeinctl/cluster/local_cluster.h"
#include "services/skeinctl/exit_codes.h"

namespace skein::services {

// `flag` if it is given, else the cluster that deploy/local/up started. UNAVAILABLE: it started one
// whose orchestrator is gone. INVALID_ARGUMENT: there is none, and what to give.
absl::StatusOr<std::string> FindOrchestrator(const std::string& flag,
                                             const Environment& environment);

class ClusterClient {
 public:
  explicit ClusterClient(std::string orchestrator);

  const std::string& orchestrator() const { return orchestrator_; }
  // UNAVAILABLE: the orchestrator does not answer, with its address. Other codes are its own.
  absl::StatusOr<v1::StatusResponse> Status();
  absl::StatusOr<v1::ExplainResponse> Explain(const std::string& request);
  absl::StatusOr<v1::ListRequestsResponse> Requests(const v1::ListRequestsRequest& request);
  absl::Status Drain(const v1::DrainRequest& request);

 private:
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response);

  const std::string orchestrator_;
  Channels channels_;
  std::unique_ptr<v1::Orchestrator::Stub> stub_;
};

// --orchestrator of a command that finds the cluster by FindOrchestrator. *target is empty.
void RegisterCluster(std::string* target, FlagSet* set);
// --format, one of the two. *target is the first.
void RegisterFormat(std::string* target, const char* text, FlagSet* set);
// Prints the error of a command; its exit code.
int EndWith(const char* command, const absl::Status& error);

}  // namespace skein::services
