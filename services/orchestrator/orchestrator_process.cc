#include "services/orchestrator/orchestrator_process.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/admin/admin_server.h"
#include "services/base/process.h"
#include "services/base/signals.h"
#include "services/http/admin.h"
#include "services/jobs/job_metrics.h"
#include "services/jobs/job_service.h"
#include "services/log/log.h"
#include "services/metrics/metrics.h"
#include "services/metrics/process_metrics.h"
#include "services/orchestrator/candidacy.h"
#include "services/orchestrator/formation_metrics.h"
#include "services/orchestrator/generation_file.h"
#include "services/orchestrator/group_page.h"
#include "services/orchestrator/offline_jobs.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/orchestrator/planning_options.h"
#include "services/orchestrator/retuner.h"
#include "services/orchestrator_link/own_build.h"
#include "services/tracing/trace_page.h"
#include "services/tracing/tracing.h"

namespace skein::services {
namespace {

// Workers and routers that find their leader gone ask the others at least every 0.3 s
// (MembershipConfig, SessionConfig); the rest is for machines that are busy.
constexpr int64_t kSettleUs = 550'000;
// A leader whose store was lost finds out when it renews, after a quarter of its lease. etcd's
// leases are of 2 s as it comes, and its calls take longer.
constexpr int64_t kSettleByEtcdUs = 750'000;

scheduler::OrchestratorConfig ConfigFrom(const OrchestratorOptions& options) {
  scheduler::OrchestratorConfig config;
  config.incarnation = {RandomIncarnation()};
  config.build = OwnBuild();
  config.max_requests = options.max_requests;
  config.instance_lease_us = static_cast<int64_t>(options.instance_lease_s * 1e6);
  config.instance_silent_us =
      std::max(static_cast<int64_t>(options.instance_silent_s * 1e6), config.instance_lease_us / 2);
  config.pace = {.slow_factor = options.slow_factor,
                 .suspect_factor = options.slow_suspect_factor,
                 .step_min_us = static_cast<int64_t>(options.slow_step_min_s * 1e6),
                 .share_max = options.slow_share,
                 .aside_after_us = static_cast<int64_t>(options.slow_aside_s * 1e6)};
  config.hung_step_us = static_cast<int64_t>(options.hung_step_s * 1e6);
  config.request_deadline_us = static_cast<int64_t>(options.request_deadline_s * 1e6);
  return config;
}

void RefreshPlans(const std::string& model, const scheduler::PlanTotals& plans, Metrics* metrics) {
  const auto total = [&](const char* name, const char* help, Metrics::Labels labels, auto value) {
    labels["model_name"] = model;
    metrics->Total(name, help, labels, value);
  };
  for (const auto& [chunks, count] : plans.plans_by_chunks) {
    total("skein_plans_total", "Plans whose prompt was computed, by the number of chunks.",
          {{"chunks", std::to_string(chunks)}}, count);
  }
  for (const auto& [shape, count] : plans.chunks_by_shape) {
    total("skein_plan_chunks_total",
          "Chunks of plans whose prompt was computed, by the number of instances, and by how many "
          "of these computed the dense part together.",
          {{"sp", std::to_string(shape.first)}, {"tp", std::to_string(shape.second)}}, count);
  }
  total("skein_plan_estimated_seconds_total", "Estimated time from a plan to its last chunk's end.",
        {}, plans.estimated_s);
  total("skein_plan_actual_seconds_total", "Actual time from a plan to its last chunk's end.", {},
        plans.actual_s);
  total("skein_plan_error_seconds_total",
        "Absolute difference of the estimated and the actual time of plans.", {}, plans.error_s);
}

void RefreshPaces(const std::string& model, const char* role,
                  const scheduler::ModelTotals::Paces& paces, Metrics* metrics) {
  const auto gauge = [&](const char* pace, int64_t instances) {
    metrics
        ->Gauge("skein_instances_slow",
                "Instances that are slow beside their peers: they get less (slow), nothing new "
                "(suspect), or nothing for a while (aside).",
                {{"model_name", model}, {"role", role}, {"pace", pace}})
        .Set(static_cast<double>(instances));
  };
  gauge("slow", paces.slow);
  gauge("suspect", paces.suspect);
  gauge("aside", paces.aside);
}

// `generation`: of the core that runs. `candidacy`: null without --store.
void RefreshStanding(const std::string& cell, const OrchestratorShell& shell, uint64_t generation,
                     const Candidacy* candidacy, Metrics* metrics) {
  const bool leads = shell.Standing().ok();
  const auto gauge = [&](const char* name, const char* help, double value) {
    metrics->Gauge(name, help, {{"cell", cell}}).Set(value);
  };
  gauge("skein_orchestrator_leader", "1 while this orchestrator leads its cell, else 0.",
        leads ? 1 : 0);
  gauge("skein_orchestrator_leading_since_seconds",
        "Unix time since which this orchestrator leads its cell; 0: it stands by.",
        leads ? static_cast<double>(shell.led_since_s()) : 0);
  gauge("skein_orchestrator_generation",
        "Generation with which this orchestrator leads its cell; 0: it stands by.",
        leads ? static_cast<double>(generation) : 0);
  gauge("skein_orchestrator_lease_left_seconds",
        "Time after which this orchestrator stops to lead unless it renews its lease; 0: it has "
        "none.",
        candidacy != nullptr ? candidacy->LeaseLeftS() : 0);
  metrics->Total("skein_orchestrator_leaderships_total",
                 "How often this orchestrator began to lead its cell.", {{"cell", cell}},
                 shell.times_led());
}

void Refresh(const scheduler::OrchestratorSnapshot& totals, const absl::Status& invariants,
             Metrics* metrics) {
  const auto gauge = [metrics](const char* state, int64_t value) {
    metrics
        ->Gauge("skein_orchestrator_requests", "Requests that the orchestrator follows, by state.",
                {{"state", state}})
        .Set(static_cast<double>(value));
  };
  gauge("planning", totals.planning);
  gauge("parked", totals.parked);
  gauge("assigning", totals.assigning);
  gauge("assigned", totals.assigned);
  gauge("waiting", totals.waiting);
  gauge("reserving", totals.reserving);
  gauge("placed", totals.placed);
  gauge("sharing", totals.sharing);
  const auto instances = [metrics](const char* role, double value) {
    metrics->Gauge("skein_instances", "Live instances, by role.", {{"role", role}}).Set(value);
  };
  instances("prefill", static_cast<double>(totals.prefill_instances));
  instances("decode", static_cast<double>(totals.decode_instances));
  metrics->Total("skein_requests_submitted_total", "Requests submitted.", {}, totals.submitted);
  metrics->Total("skein_requests_failed_total",
                 "Requests that failed at the orchestrator or at a worker.", {}, totals.failed);
  metrics->Total("skein_requests_refused_total",
                 "Requests refused before any work, at a request limit.", {}, totals.refused);
  for (const auto& [of, count] : totals.lost) {
    const char* role = of.second == scheduler::Role::kPrefill ? "prefill" : "decode";
    metrics->Total("skein_instances_lost_total",
                   "Instances whose lease expired, or that were replaced.",
                   {{"model_name", of.first}, {"role", role}}, count);
  }
  for (const auto& [name, model] : totals.models) {
    metrics
        ->Gauge("skein_instances_missed",
                "Decode instances that do not report but still send tokens to routers.",
                {{"model_name", name}})
        .Set(static_cast<double>(model.missed));
    RefreshPaces(name, "prefill", model.prefill_paces, metrics);
    RefreshPaces(name, "decode", model.decode_paces, metrics);
  }
  metrics->Total("skein_instances_suspected_total",
                 "How often an instance became suspect because it was slow beside its peers.", {},
                 totals.suspected);
  metrics->Total("skein_instances_set_aside_total",
                 "How often the requests of an instance went on elsewhere because it was slow.", {},
                 totals.set_aside);
  metrics->Total("skein_instances_hung_total",
                 "How often the requests of an instance went on elsewhere because its step did not "
                 "end.",
                 {}, totals.hung);
  metrics
      ->Gauge("skein_unreached_pairs",
              "Pairs of instances that are not planned together for a while, because a handoff "
              "between them, or a step that computed a prompt together, failed.")
      .Set(static_cast<double>(totals.unreached_pairs));
  metrics->Total("skein_pair_failures_total",
                 "How often a pair of instances did not reach each other.", {},
                 totals.pair_failures);
  metrics->Total("skein_spanning_plans_total", "Plans on more than one instance.", {},
                 totals.sp_plans);
  metrics->Total("skein_shared_prompts_total",
                 "Choices that got their prompt's KV from the first choice of their answer.", {},
                 totals.shared_prompts);
  metrics->Total("skein_replans_total", "Plans that were cancelled and replaced.", {},
                 totals.replans);
  metrics->Total("skein_report_digest_mismatches_total",
                 "Reports whose digest did not match the requests listed for their worker.", {},
                 totals.digest_mismatches);
  for (size_t kind = 0; kind < scheduler::kDegradedKinds; ++kind) {
    const char* reason = NameOf(static_cast<scheduler::Degraded>(kind));
    metrics->Total(
        "skein_degraded_total",
        "Requests that were delayed, recomputed or handed over by a slower path, by reason.",
        {{"reason", reason}}, totals.degraded[kind]);
  }
  for (const auto& [model, plans] : totals.plans) RefreshPlans(model, plans, metrics);
  metrics->Gauge("skein_invariants_ok", "1 unless the last /debug/invariants found a violation.")
      .Set(invariants.ok() ? 1 : 0);
  metrics->Gauge("skein_epoch", "The latest epoch that was issued.")
      .Set(static_cast<double>(totals.last_epoch.value));
}

void SetRefusedPeers(const std::vector<scheduler::RefusedPeer>& refused, Metrics* metrics) {
  std::map<std::string, int> counts = {{"prefill-worker", 0}, {"decode-worker", 0}, {"router", 0}};
  for (const scheduler::RefusedPeer& peer : refused) ++counts[peer.what];
  for (const auto& [what, count] : counts) {
    metrics
        ->Gauge("skein_refused_peers",
                "Workers and routers that were refused of late: they do not fit the cluster.",
                {{"peer", what}})
        .Set(count);
  }
}

std::vector<std::string> ModelsOf(const scheduler::OrchestratorSnapshot& totals) {
  std::vector<std::string> names;
  for (const auto& [name, model] : totals.models) names.push_back(name);
  return names;
}

// What the admin pages need.
struct Pages {
  Pages(OrchestratorShell* orchestrator_shell, Retuner* of_tables, const Candidacy* of_election,
        JobShell* of_jobs, Metrics* of_process)
      : shell(orchestrator_shell),
        retuner(of_tables),
        candidacy(of_election),
        jobs(of_jobs),
        metrics(*of_process) {}

  OrchestratorShell* const shell;
  Retuner* const retuner;
  const Candidacy* const candidacy;  // null without --store
  JobShell* const jobs;              // null: offline jobs are turned off
  Tracing* tracing = nullptr;        // set before the admin server starts; null: tracing is off
  OrchestratorService service{shell};
  Metrics& metrics;
  ProcessMetrics process{"orchestrator", &metrics};
  std::atomic<int> port{0};  // 0: not open yet
  std::atomic<bool> stopping{false};
};

ProcessStatus StatusOf(const OrchestratorOptions& options, const Pages& pages) {
  ProcessStatus status{.role = "orchestrator", .started = pages.port.load() != 0};
  if (status.started) status.endpoint = absl::StrCat(options.host, ":", pages.port.load());
  const auto copy = pages.shell->Count();
  if (copy.has_value()) {
    const scheduler::OrchestratorSnapshot& counts = copy->snapshot;
    status.running = counts.placed;
    status.waiting = counts.requests - counts.placed;
  }
  status.in_flight = status.running + status.waiting;
  if (!copy.has_value() || pages.stopping.load()) {
    status.state = ProcessState::kStopping;
    status.reason = "stopping";
  } else if (pages.service.draining()) {
    status.safe_to_delete = status.in_flight == 0;
    status.state = status.safe_to_delete ? ProcessState::kDrained : ProcessState::kDraining;
    status.reason =
        status.safe_to_delete ? "drained: safe to delete" : "draining: " + WhatIsLeft(status);
  } else if (status.started && !pages.shell->Standing().ok()) {
    status.state = ProcessState::kStandby;
    status.reason = std::string(pages.shell->Standing().message());
  } else if (status.started) {
    status.state = ProcessState::kServing;
  } else {
    status.reason = "the port is not open yet";
  }
  return status;
}

// Not kept over a restart: another orchestrator takes requests.
absl::Status Order(const DrainOrder& order, Pages* pages) {
  if (pages->stopping.load()) {
    return order.drain ? absl::OkStatus()
                       : absl::FailedPreconditionError("the process is stopping");
  }
  if (order.drain && !order.force) {
    return absl::FailedPreconditionError("it is the last orchestrator: clients would get 503");
  }
  pages->service.OrderDrain(order.drain);
  return absl::OkStatus();
}

AdminHooks HooksOf(const OrchestratorOptions& options, Pages* pages) {
  return {
      .service = "orchestrator",
      .status = [&options, pages] { return StatusOf(options, *pages); },
      .order = [pages](const DrainOrder& order) { return Order(order, pages); },
      .metrics =
          [&options, pages] {
            const auto copy = pages->shell->Count();
            RefreshStanding(options.cell, *pages->shell, copy ? copy->snapshot.generation : 0,
                            pages->candidacy, &pages->metrics);
            if (copy) {
              Refresh(copy->snapshot, copy->invariants, &pages->metrics);
              pages->retuner->Refresh(ModelsOf(copy->snapshot));
            }
            SetJobMetrics(pages->jobs ? pages->jobs->Figures() : std::nullopt, std::time(nullptr),
                          &pages->metrics);
            pages->process.Refresh();
            if (pages->tracing != nullptr) pages->tracing->RefreshMetrics();
            Metrics groups;
            if (const auto look = pages->shell->Look()) {
              SetFormations(look->snapshot.groups, &groups);
              SetRefusedPeers(look->snapshot.refused_peers, &groups);
            }
            return pages->metrics.RenderWith(groups);
          },
      .invariants =
          [pages] {
            absl::Status status = pages->shell->CheckInvariants();
            if (pages->jobs != nullptr) status.Update(pages->jobs->CheckInvariants());
            return status;
          },
      .more =
          [pages](http::Routes* routes) {
            http::AddJsonPage(
                "/debug/groups",
                [pages] {
                  const auto copy = pages->shell->Look();
                  return copy != nullptr ? GroupsJson(copy->snapshot.groups) : GroupsJson({});
                },
                routes);
            http::AddJsonPage(
                "/debug/planning", [pages] { return pages->retuner->Json(); }, routes);
            AddTracePage(
                [pages] { return pages->tracing != nullptr ? pages->tracing->recent() : nullptr; },
                routes);
          }};
}

Retuner::Hooks RetuneHooks(OrchestratorShell* shell) {
  return {.instances =
              [shell] {
                std::map<std::string, int64_t> instances;
                if (const auto copy = shell->Count()) {
                  for (const auto& [name, model] : copy->snapshot.models) {
                    if (model.prefill.instances > 0) instances[name] = model.prefill.instances;
                  }
                }
                return instances;
              },
          .apply =
              [shell](const std::string& model, const scheduler::PlanningTables& tables) {
                shell->ReplaceTables(tables, model);
              }};
}

// The tables are the only part of a profile that may change under a running cluster.
void Reload(const OrchestratorOptions& options, const scheduler::PlanningConfig* running,
            Retuner* retuner) {
  if (running == nullptr) {
    return LogWarning("planning tables not reloaded",
                      {{"reason", "--profile is not given, so there is no file to read"}});
  }
  const auto tables = ReloadTables(options, *running);
  if (!tables.ok()) {
    return LogWarning("planning tables not reloaded",
                      {{"reason", std::string(tables.status().message())}});
  }
  retuner->Reloaded(*tables);
  LogInfo("planning tables reloaded",
          {{"profile", options.profile},
           {"improvement_rate_rows", static_cast<int64_t>(tables->improvement_rates.rows().size())},
           {"rolling_rows", static_cast<int64_t>(tables->rolling.rows().size())}});
}

}  // namespace

absl::Status RunOrchestrator(const OrchestratorOptions& options,
                             std::shared_ptr<const scheduler::PlanningConfig> planning,
                             const scheduler::orchestrator::FormationConfig& formations) {
  BlockReloadSignal();
  scheduler::OrchestratorConfig config = ConfigFrom(options);
  config.planning = planning;
  config.formations = formations;
  std::unique_ptr<Candidacy> candidacy;  // null: this is the cell's only orchestrator
  if (options.store != "none") {
    auto opened = Candidacy::Open(options);
    if (!opened.ok()) return opened.status();
    candidacy = *std::move(opened);
    config.settle_us = options.store == "etcd" ? kSettleByEtcdUs : kSettleUs;
  } else if (!options.state_dir.empty()) {
    auto generation = NextGeneration(options.state_dir);
    if (!generation.ok()) return generation.status();
    config.generation = *generation;
  }
  if (candidacy == nullptr) LogInfo("generation", {{"generation", config.generation}});
  GenerationKeeper keeper(candidacy == nullptr ? options.state_dir : "");
  Metrics metrics;
  FormationMetrics formation_metrics(&metrics);
  const std::unique_ptr<Tracing> tracing =
      Tracing::Start(options.tracing, ThisProcess("orchestrator"), &metrics);
  OrchestratorShell shell(config, kInboxMax, [&keeper, &candidacy](uint64_t generation) {
    if (candidacy != nullptr) return candidacy->Raise(generation);
    keeper.Keep(generation);
  });
  if (candidacy != nullptr) {
    shell.StandBy([&candidacy] { return candidacy->Leads(); });
    shell.WatchHearing({.nobody = [&candidacy] { candidacy->StepAside(); },
                        .somebody = [&candidacy] { candidacy->Heard(); }});
  }
  shell.WatchFormations([&formation_metrics](const scheduler::FormationSwitched& switched) {
    formation_metrics.Count(switched);
  });
  shell.WatchModes([&formation_metrics](const scheduler::SharedModeChanged& changed) {
    formation_metrics.Count(changed);
  });
  Retuner retuner(std::chrono::duration<double>(options.retune_hours * 3600),
                  WhyNotRetuned(options), planning, RetuneHooks(&shell), &metrics);
  shell.WatchPrompts([&retuner](const scheduler::PromptTaken& prompt) {
    retuner.Saw(prompt.model, prompt.tokens, MonotonicUs());
  });
  const std::unique_ptr<JobShell> jobs = MakeJobs(options, &shell);
  JobService job_service(jobs.get());
  Pages pages(&shell, &retuner, candidacy.get(), jobs.get(), &metrics);
  pages.tracing = tracing.get();
  if (tracing != nullptr) shell.Trace(tracing->tracer());
  shell.Start();
  if (jobs != nullptr) jobs->Start();
  retuner.Start();
  auto admin = AdminServer::Start(options.admin, options.host, HooksOf(options, &pages));
  if (!admin.ok()) return admin.status();
  pages.service.SetAdminPort((*admin)->port());
  auto rpc =
      ServeRpc(absl::StrCat(options.host, ":", options.port), {&pages.service, &job_service});
  if (!rpc.ok()) return AboutListening("port", rpc.status());
  pages.port.store(rpc->port);
  if (auto written = WritePortFile(options.port_file, rpc->port); !written.ok()) return written;
  LogInfo("listening",
          {{"grpc_port", rpc->port}, {"admin_port", static_cast<int>((*admin)->port())}});
  if (candidacy != nullptr) {
    const uint64_t incarnation = config.incarnation.value;
    if (auto s = candidacy->Campaign(&shell, incarnation, rpc->port); !s.ok()) return s;
  }
  while (AwaitStopOrReloadSignal() == SIGHUP) {
    Reload(options, planning.get(), &retuner);
  }
  LogInfo("stopping");
  pages.stopping.store(true);
  retuner.Stop();
  if (jobs != nullptr) jobs->Stop();  // before another one leads, and may take the folder
  if (candidacy != nullptr) candidacy->Resign();
  shell.Stop();
  rpc->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  (*admin)->Stop(std::chrono::milliseconds(500));
  if (candidacy != nullptr) candidacy->End();
  return absl::OkStatus();
}

}  // namespace skein::services
