#include "absl/status/status.h"
#include "services/http/admin.h"
#include "services/worker/decode/decode_service.h"
#include "services/worker/process/bound_metrics.h"
#include "services/worker/process/run_worker.h"
#include "services/worker/process/transports_page.h"
#include "services/worker/process/worker_process.h"

namespace skein::services {
namespace {

scheduler::DecodeConfig ConfigOf(const WorkerOptions& options, const WorkerEngine& engine,
                                 const WorkerServers& servers) {
  const engine::EngineSpec& spec = engine.engine->Spec();
  scheduler::DecodeConfig config;
  config.membership.identity = IdentityOf(options, scheduler::Role::kDecode, spec, servers);
  config.membership.identity.comm_address = engine.fabric->Address();
  config.batch = BatchLimitsOf(options);
  config.memory = engine.description;
  if (engine.staging != nullptr) {
    for (int i = 0; i < engine.staging->buffers(); ++i) {
      config.staging.memory.push_back(engine.staging->Description(i));
    }
    config.staging.slots = engine.staging->slots();
  }
  config.engine = EngineWatchOf(options, spec);
  config.engine.evidence_us = config.request_deadline_us;
  config.max_requests = options.max_requests;
  config.group.own_share = options.formation_own_share;
  config.group.can_share = engine.cannot_share;  // unless the shell has its engine share
  config.max_sequence_tokens = spec.max_positions;
  config.lease_us = static_cast<int64_t>(options.lease_s * 1e6);
  return config;
}

void Observe(const std::string& model, Metrics* metrics, DecodeShell* shell) {
  shell->ObserveDecodeQueue(&DecodeQueueSeconds(model, metrics));
  shell->ObserveGaps([gaps = StreamGapMetrics(model, metrics)](const scheduler::StreamGap& gap) {
    gaps.Count(gap);
  });
}

void RefreshPermits(const PermitGate& permits, const std::string& model, Metrics* metrics) {
  const auto refused = permits.Refused();
  for (size_t why = 0; why < refused.size(); ++why) {
    const auto reason = PermitGate::NameOf(static_cast<PermitGate::Refusal>(why));
    metrics->Total("skein_permits_refused_total",
                   "Calls about handoffs that were refused for their permit, by reason.",
                   {{"model_name", model}, {"reason", std::string(reason)}}, refused[why]);
  }
}

void Refresh(DecodeShell* shell, const std::string& model, Metrics* metrics) {
  RefreshPermits(*shell->permits(), model, metrics);
  RefreshCommMade(shell->CommMade(), model, metrics);
  RefreshComm(shell->GroupWays(), model, metrics);
  RefreshSharing(shell->Shared(), model, metrics);
  const auto copy = shell->Look();
  if (!copy.has_value()) return;
  const auto& [snapshot, invariants] = *copy;
  // Deferred: until their KV is here.
  RefreshLoad(snapshot.load,
              {.capacity = snapshot.preempted,
               .deferred = snapshot.load.queued_requests - snapshot.preempted},
              model, metrics);
  const Metrics::Labels labels = {{"model_name", model}};
  metrics->Total("skein_output_tokens_computed_total", "Output tokens computed.", labels,
                 snapshot.output_tokens);
  metrics->Total("vllm:num_preemptions_total",
                 "Times that a request lost its KV blocks to another request.", EngineLabels(model),
                 snapshot.preemptions);
  metrics->Total("skein_recomputed_tokens_total",
                 "Tokens of prompts and outputs computed again after a preemption.", labels,
                 snapshot.recomputed_tokens);
  metrics->Total("skein_drain_asks_total",
                 "Times that this worker, because it drains, asked a router to move a stream.",
                 labels, snapshot.asked_to_move);
  const auto blocks = [&](const char* state, int64_t count) {
    metrics
        ->Gauge("skein_kv_blocks", "KV blocks, by state.",
                {{"model_name", model}, {"state", state}})
        .Set(static_cast<double>(count));
  };
  blocks("quarantined", snapshot.blocks.quarantined);
  blocks("shared", snapshot.blocks.shared);
  blocks("claimed", snapshot.load.claimed_blocks);
  RefreshBoundKv(snapshot.bound_kv, model, metrics);
  RefreshSteps(shell->StepTotalsByMode(), snapshot.probes, model, metrics);
  const auto buffers = [&](const char* state, int64_t count) {
    metrics
        ->Gauge("skein_handoff_backends", "Staging buffers of --handoff=staging, by state.",
                {{"model_name", model}, {"state", state}})
        .Set(static_cast<double>(count));
  };
  buffers("held", snapshot.staging_buffers_held);
  buffers("free", snapshot.buffers - snapshot.staging_buffers_held);
  metrics->Gauge("skein_handoff_backend_waiting", "Writers that wait for a staging buffer.", labels)
      .Set(static_cast<double>(snapshot.staging_buffer_waiting));
  metrics
      ->Gauge("skein_invariants_ok", "1 unless the last /debug/invariants found a violation.",
              labels)
      .Set(invariants.ok() ? 1 : 0);
}

void AddPages(http::Routes* routes, WorkerPages<DecodeShell>* pages) {
  http::AddJsonPage(
      "/debug/transports",
      [pages] {
        std::string json = TransportsJson({}, {});
        pages->shell.With(
            [&json](DecodeShell& running) { json = TransportsJson({}, running.GroupWays()); });
        return json;
      },
      routes);
}

}  // namespace

absl::Status RunDecodeWorker(const WorkerOptions& options) {
  return RunWorker<DecodeShell, DecodeService>(options, scheduler::Role::kDecode, ConfigOf, Observe,
                                               Refresh, AddPages);
}

}  // namespace skein::services
