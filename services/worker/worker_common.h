// What the two worker processes share. Internal to services/worker.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/worker/membership_events.h"
#include "services/admin/admin_server.h"
#include "services/base/metrics.h"
#include "services/base/rpc.h"
#include "services/worker/worker_engine.h"
#include "services/worker/worker_options.h"

namespace skein::services {

// The servers of one worker, listening.
struct WorkerServers {
  RpcServer rpc;
  AdminServer* admin = nullptr;  // not owned
};

// Listens for RPCs of at most `message_bytes_max` and writes the port's file. `service` and `admin`
// outlive the servers.
absl::StatusOr<WorkerServers> ListenAsWorker(const WorkerOptions& options, grpc::Service* service,
                                             int message_bytes_max, AdminServer* admin);

// Who this worker is, from options, engine and the bound ports.
scheduler::WorkerIdentity IdentityOf(const WorkerOptions& options, scheduler::Role role,
                                     const engine::EngineSpec& spec, const WorkerServers& servers);

scheduler::BatchLimits BatchLimitsOf(const WorkerOptions& options);

// host:port at which others reach the worker's RPCs.
std::string EndpointOf(const WorkerOptions& options, const WorkerServers& servers);

// JSON of /debug/invariants.
std::string InvariantsJson(const absl::Status& invariants);

// vLLM's vllm:iteration_tokens_total, for the shell to observe; vllm:cache_config_info besides.
prometheus::Histogram& StepTokens(const engine::EngineSpec& spec, const std::string& model,
                                  Metrics* metrics);

// Requests that wait, by the reason in vLLM's words: for computation of this instance, or for
// something else (another instance's room, KV that is on its way).
struct WaitingRequests {
  int64_t capacity = 0, deferred = 0;
};

// vLLM's gauges and our own, from a worker's load; `waiting` are its queued requests.
void RefreshLoad(const scheduler::WorkerLoad& load, WaitingRequests waiting,
                 const std::string& model, Metrics* metrics);

// Set once; waited for with a bound.
class Latch {
 public:
  void Set();
  // False: `seconds` passed first.
  bool WaitFor(double seconds);

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Waits for SIGTERM or SIGINT, drains, stops. `drain` starts it, `stop` ends the shell.
absl::Status ServeUntilDrained(const WorkerOptions& options, Latch* drained,
                               const std::function<void(int64_t grace_us)>& drain,
                               const std::function<void()>& stop, WorkerServers* servers);

void LogEngine(const engine::EngineSpec& spec, const std::string& model);

}  // namespace skein::services
