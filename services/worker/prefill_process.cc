#include "services/worker/prefill_service.h"
#include "services/worker/run_worker.h"
#include "services/worker/worker_process.h"

namespace skein::services {
namespace {

scheduler::PrefillConfig ConfigOf(const WorkerOptions& options, const WorkerEngine& engine,
                                  const WorkerServers& servers) {
  const engine::EngineSpec& spec = engine.engine->Spec();
  scheduler::PrefillConfig config;
  config.membership.identity = IdentityOf(options, scheduler::Role::kPrefill, spec, servers);
  config.membership.identity.comm_address = engine.fabric->Address();
  config.batch = BatchLimitsOf(options);
  config.max_requests = options.max_requests;
  config.max_sequence_tokens = spec.max_positions;
  return config;
}

void Refresh(PrefillShell* shell, const std::string& model, Metrics* metrics) {
  shell->Inspect([&](const scheduler::PrefillSnapshot& snapshot, const absl::Status& invariants) {
    RefreshLoad(snapshot.load, model, metrics);
    const Metrics::Labels labels = {{"model_name", model}};
    Metrics::RaiseTo(
        &metrics->Counter("vllm:prompt_tokens_total", "Prompt tokens computed.", labels),
        static_cast<double>(snapshot.prompt_tokens));
    Metrics::RaiseTo(&metrics->Counter("skein_engine_steps_total", "Steps run.", labels),
                     static_cast<double>(snapshot.steps));
    Metrics::RaiseTo(&metrics->Counter("skein_handoffs_committed_total",
                                       "Prompts whose KV was taken by a decode instance.", labels),
                     static_cast<double>(snapshot.committed));
    metrics->Gauge("skein_invariants_ok", "1 while every invariant of the core holds.")
        .Set(invariants.ok() ? 1 : 0);
  });
  double bytes = 0, seconds = 0;
  for (const engine::HandoffTotals& totals : shell->HandoffTotals()) {
    bytes += static_cast<double>(totals.bytes);
    seconds += totals.busy_seconds;
  }
  Metrics::RaiseTo(&metrics->Counter("skein_handoff_bytes_total", "KV bytes handed over."), bytes);
  Metrics::RaiseTo(
      &metrics->Counter("skein_handoff_busy_seconds_total",
                        "Time during which at least one handoff moved bytes to a peer."),
      seconds);
}

}  // namespace

absl::Status RunPrefillWorker(const WorkerOptions& options) {
  return RunWorker<PrefillShell, PrefillService>(options, scheduler::Role::kPrefill, ConfigOf,
                                                 Refresh);
}

}  // namespace skein::services
