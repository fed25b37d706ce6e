#include "services/skeinctl/cluster/cluster_client.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/shell/loop.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

constexpr std::chrono::milliseconds kTimeout{5000};
// Between two rounds over the orchestrators of a cell in which none leads yet.
constexpr std::chrono::milliseconds kElection{100};
// An orchestrator that does not answer is given up so soon where there is another one.
constexpr std::chrono::milliseconds kOneOfSeveral{1500};

// The longest time for one call to one orchestrator of the cell.
std::chrono::milliseconds OnceOf(const std::string& cell) {
  return absl::StrContains(cell, '+') ? kOneOfSeveral : kTimeout;
}

}  // namespace

absl::StatusOr<std::string> FindOrchestrator(const std::string& flag,
                                             const Environment& environment) {
  if (!flag.empty()) return flag;
  const auto cluster = FindLocalCluster(environment);
  if (cluster.ok()) return cluster->orchestrator;
  if (absl::IsUnavailable(cluster.status())) return cluster.status();  // known, but stopped
  return absl::InvalidArgumentError(
      absl::StrCat("no cluster found. Give --orchestrator HOST:PORT, set SKEIN_ORCHESTRATOR, or "
                   "start a cluster with deploy/local/up. (",
                   std::string(cluster.status().message()), ".)"));
}

ClusterClient::ClusterClient(std::string orchestrator)
    : orchestrator_(std::move(orchestrator)), orchestrators_(orchestrator_) {}

template <typename Service, typename Method, typename Request, typename Response>
grpc::Status ClusterClient::CallOnce(const std::string& orchestrator,
                                     std::chrono::milliseconds time, Method method,
                                     const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + time);
  const auto stub = Service::NewStub(channels_.Get(orchestrator, {tls::Role::kOrchestrator}));
  return (stub.get()->*method)(&context, request, response);
}

// Every order may be given twice, so one that may have been carried out is given to the next
// orchestrator, too.
template <typename Service, typename Method, typename Request, typename Response>
grpc::Status ClusterClient::CallWithin(std::chrono::milliseconds time,
                                       std::chrono::milliseconds once, Method method,
                                       const Request& request, Response* response) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + time;
  for (;;) {
    orchestrators_.BeginRound();
    bool election = false;  // one stands by, so another one leads soon
    for (bool another = true; another;) {
      const std::string orchestrator = orchestrators_.Current();
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      grpc::Status status =
          CallOnce<Service>(orchestrator, std::min(once, left), method, request, response);
      const absl::Status told = FromGrpc(status, "orchestrator");
      const bool stands_by = LeaderOf(told).has_value();
      if (!stands_by && !IsTransportFailure(status)) return status;
      another = orchestrators_.Failed(orchestrator, told, MonotonicUs());
      election = election || stands_by;
      if (!another && !election) return status;
      if (Clock::now() + kElection > end) return status;
    }
    std::this_thread::sleep_for(kElection);
  }
}

template <typename Service, typename Method, typename Request, typename Response>
absl::Status ClusterClient::Call(Method method, const Request& request, Response* response) {
  const grpc::Status status =
      CallWithin<Service>(kTimeout, OnceOf(orchestrator_), method, request, response);
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const bool silent =
      code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
  return silent ? Silent(status) : absl::Status(code, status.error_message());
}

absl::Status ClusterClient::Silent(const grpc::Status& status) const {
  return absl::UnavailableError(absl::StrCat("the orchestrator at ", orchestrator_,
                                             " does not answer: ", status.error_message()));
}

absl::StatusOr<v1::StatusResponse> ClusterClient::Status() {
  v1::StatusResponse response;
  const absl::Status status = Call(&v1::Orchestrator::Stub::Status, v1::StatusRequest(), &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ExplainResponse> ClusterClient::Explain(const std::string& request) {
  v1::ExplainRequest message;
  message.set_request(request);
  v1::ExplainResponse response;
  const absl::Status status = Call(&v1::Orchestrator::Stub::Explain, message, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ListRequestsResponse> ClusterClient::Requests(
    const v1::ListRequestsRequest& request) {
  v1::ListRequestsResponse response;
  const absl::Status status = Call(&v1::Orchestrator::Stub::ListRequests, request, &response);
  if (!status.ok()) return status;
  return response;
}

absl::Status ClusterClient::Drain(const v1::DrainRequest& request) {
  v1::DrainResponse response;
  return Call(&v1::Orchestrator::Stub::Drain, request, &response);
}

absl::StatusOr<v1::ListGroupsResponse> ClusterClient::Groups() {
  v1::ListGroupsResponse response;
  const absl::Status status =
      Call(&v1::Orchestrator::Stub::ListGroups, v1::ListGroupsRequest(), &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ChangeFormationResponse> ClusterClient::ChangeFormation(
    const v1::ChangeFormationRequest& request, std::chrono::milliseconds wait) {
  v1::ChangeFormationResponse response;
  const grpc::Status status =
      CallWithin(wait, wait, &v1::Orchestrator::Stub::ChangeFormation, request, &response);
  if (status.ok()) return response;
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable) return Silent(status);
  if (code != absl::StatusCode::kDeadlineExceeded) {
    return absl::Status(code, status.error_message());
  }
  return absl::DeadlineExceededError(absl::StrCat("not done within ", wait.count() / 1000,
                                                  " s; the orchestrator goes on with it"));
}

absl::StatusOr<v1::ListJobsResponse> ClusterClient::Jobs(const v1::ListJobsRequest& request) {
  v1::ListJobsResponse response;
  absl::Status status = Call<v1::Jobs>(&v1::Jobs::Stub::ListJobs, request, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::JobStatus> ClusterClient::Job(const std::string& id) {
  v1::JobId request;
  request.set_id(id);
  v1::JobStatus response;
  absl::Status status = Call<v1::Jobs>(&v1::Jobs::Stub::GetJob, request, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::JobStatus> ClusterClient::CancelJob(const std::string& id) {
  v1::JobId request;
  request.set_id(id);
  v1::JobStatus response;
  absl::Status status = Call<v1::Jobs>(&v1::Jobs::Stub::CancelJob, request, &response);
  if (!status.ok()) return status;
  return response;
}

void RegisterCluster(std::string* target, FlagSet* set) {
  set->String(target, "orchestrator",
              "Address of the orchestrator; or of several, of which one leads and the others stand "
              "by, joined by '+'.")
      .Value("HOST:PORT[+...]")
      .Environment("SKEIN_ORCHESTRATOR")  // shared with the services
      .Default("the cluster that deploy/local/up started on this machine");
  tls::RegisterClientSecurity(set);
}

void RegisterFormat(std::string* target, const char* text, FlagSet* set) {
  set->String(target, "format", "Output format.").OneOf({text, "json"}).Value("FORMAT");
}

int EndWith(const char* command, const absl::Status& error) {
  PrintErrors(absl::StrCat("skeinctl ", command), error, kFailed);
  return ExitCodeOf(error);
}

}  // namespace skein::services
