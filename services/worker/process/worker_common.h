// What the two worker processes share. Internal to services/worker.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/worker/membership/membership_events.h"
#include "scheduler/worker/steps/engine_watch.h"
#include "services/admin/admin_server.h"
#include "services/metrics/metrics.h"
#include "services/rpc/rpc.h"
#include "services/worker/engine/step_counts.h"
#include "services/worker/engine/worker_engine.h"
#include "services/worker/process/worker_end.h"
#include "services/worker/process/worker_options.h"

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

// The identity that this worker registers with: from options, engine and the bound ports.
scheduler::WorkerIdentity IdentityOf(const WorkerOptions& options, scheduler::Role role,
                                     const engine::EngineSpec& spec, const WorkerServers& servers);

scheduler::BatchLimits BatchLimitsOf(const WorkerOptions& options);

// An engine that is probed keeps its last block for that: the pool has the others.
scheduler::EngineWatchConfig EngineWatchOf(const WorkerOptions& options,
                                           const engine::EngineSpec& spec);
int64_t PoolBlocksOf(const WorkerOptions& options, const engine::EngineSpec& spec);

// host:port at which others reach the worker's RPCs.
std::string EndpointOf(const WorkerOptions& options, const WorkerServers& servers);

// vLLM's vllm:iteration_tokens_total, for the shell to observe; vllm:cache_config_info besides.
prometheus::Histogram& StepTokens(const engine::EngineSpec& spec, const std::string& model,
                                  Metrics* metrics);

// Of decode-workers, for the shell to observe.
prometheus::Histogram& DecodeQueueSeconds(const std::string& model, Metrics* metrics);

// DataConnectionsRefused.
void RefreshDataConnections(Metrics* metrics);
// Completed steps and started probes of the engine since the start.
void RefreshSteps(const std::vector<StepTotals>& steps, uint64_t probes, const std::string& model,
                  Metrics* metrics);

// What steps together with other instances exchanged.
void RefreshComm(const std::vector<engine::CommTotals>& all, const std::string& model,
                 Metrics* metrics);

// Links and communicators that the fabric has made.
void RefreshCommMade(const engine::FabricCounts& made, const std::string& model, Metrics* metrics);

// Requests that wait, by the reason in vLLM's words: for computation of this instance, or for
// something else (another instance's room, KV that is on its way).
struct WaitingRequests {
  int64_t capacity = 0, deferred = 0;
};

// vLLM's gauges and our own, from a worker's load; `waiting` are its queued requests.
void RefreshLoad(const scheduler::WorkerLoad& load, WaitingRequests waiting,
                 const std::string& model, Metrics* metrics);

// Waits for SIGTERM or SIGINT, drains, stops: `drain` starts it, `stop` ends the shell. When the
// engine fails it waits for the final reports and ends the process with kEngineFailed; so it does
// when a step of the engine keeps the shell from stopping.
absl::Status ServeUntilDrained(const WorkerOptions& options, WorkerEnd* end,
                               const std::function<void(int64_t grace_us)>& drain,
                               const std::function<void()>& stop, WorkerServers* servers);

void LogEngine(const engine::EngineSpec& spec, const std::string& model);

}  // namespace skein::services
