#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/http/admin.h"
#include "services/worker/prefill/prefill_service.h"
#include "services/worker/process/run_worker.h"
#include "services/worker/process/transports_page.h"
#include "services/worker/process/worker_process.h"

namespace skein::services {
namespace {

scheduler::PrefillConfig ConfigOf(const WorkerOptions& options, const WorkerEngine& engine,
                                  const WorkerServers& servers) {
  const engine::EngineSpec& spec = engine.engine->Spec();
  scheduler::PrefillConfig config;
  config.membership.identity = IdentityOf(options, scheduler::Role::kPrefill, spec, servers);
  config.membership.identity.comm_address = engine.fabric->Address();
  config.batch = BatchLimitsOf(options);
  config.engine = EngineWatchOf(options, spec);
  config.engine.evidence_us = config.request_deadline_us;
  config.max_requests = options.max_requests;
  config.max_sequence_tokens = spec.max_positions;
  config.keep_us = static_cast<scheduler::TimeUs>(options.keep_prompts_s * 1e6);
  config.ring_step.max_us = 2 * config.engine.step_timeout_us;
  return config;
}

void RefreshHandoffs(const std::vector<engine::HandoffTotals>& peers, const std::string& model,
                     Metrics* metrics) {
  struct Sum {
    double bytes = 0, seconds = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> by_path;
  for (const engine::HandoffTotals& peer : peers) {
    if (peer.path.empty()) continue;  // nothing moved yet
    Sum& sum = by_path[{peer.path, peer.transport}];
    sum.bytes += static_cast<double>(peer.bytes);
    sum.seconds += peer.busy_seconds;
  }
  for (const auto& [path, sum] : by_path) {
    const Metrics::Labels labels = {
        {"model_name", model}, {"path", path.first}, {"transport", path.second}};
    metrics->Total("skein_handoff_bytes_total", "KV bytes handed over.", labels, sum.bytes);
    metrics->Total("skein_handoff_busy_seconds_total",
                   "Time during which at least one handoff moved bytes to a peer.", labels,
                   sum.seconds);
  }
}

void RefreshCore(PrefillShell* shell, const std::string& model, Metrics* metrics) {
  const auto copy = shell->Look();
  if (!copy.has_value()) return;
  const auto& [snapshot, invariants] = *copy;
  RefreshLoad(snapshot.load, {.capacity = snapshot.queued, .deferred = snapshot.asking}, model,
              metrics);
  const Metrics::Labels labels = {{"model_name", model}};
  metrics->Total("skein_prompt_tokens_computed_total", "Prompt tokens computed.", labels,
                 snapshot.prompt_tokens);
  metrics->Total("skein_prompt_tokens_kept_total",
                 "Prompt tokens that were not computed again: their KV was kept.", labels,
                 snapshot.kept_tokens);
  RefreshSteps(shell->StepTotalsByMode(), snapshot.probes, model, metrics);
  metrics->Total("skein_handoffs_committed_total",
                 "Prompts whose KV a decode instance has received.", labels, snapshot.committed);
  metrics
      ->Gauge("skein_invariants_ok", "1 unless the last /debug/invariants found a violation.",
              labels)
      .Set(invariants.ok() ? 1 : 0);
}

void Refresh(PrefillShell* shell, const std::string& model, Metrics* metrics) {
  RefreshCore(shell, model, metrics);
  RefreshHandoffs(shell->HandoffTotals(), model, metrics);
  RefreshComm(shell->CommTotals(), model, metrics);
  RefreshCommMade(shell->CommMade(), model, metrics);
}

void AddPages(http::Routes* routes, WorkerPages<PrefillShell>* pages) {
  http::AddJsonPage(
      "/debug/transports",
      [pages] {
        std::string json = TransportsJson({}, {});
        pages->shell.With([&json](PrefillShell& running) {
          json = TransportsJson(running.HandoffTotals(), running.CommTotals());
        });
        return json;
      },
      routes);
}

}  // namespace

absl::Status RunPrefillWorker(const WorkerOptions& options) {
  const auto observe = [](const std::string&, Metrics*, PrefillShell*) {};
  return RunWorker<PrefillShell, PrefillService>(options, scheduler::Role::kPrefill, ConfigOf,
                                                 observe, Refresh, AddPages);
}

}  // namespace skein::services
