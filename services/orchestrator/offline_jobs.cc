#include "services/orchestrator/offline_jobs.h"

#include <algorithm>

namespace skein::services {
namespace {

// Prompts that wait for the step that runs do not wait for room.
constexpr int64_t kQueuedAtPrefill = 2;  // of one instance

}  // namespace

std::string JobsFolder(const OrchestratorOptions& options) {
  if (options.jobs_dir == "none") return "";
  if (!options.jobs_dir.empty()) return options.jobs_dir;
  // With etcd the orchestrators of a cell are on several hosts, which do not share this folder.
  if (options.state_dir.empty() || options.store == "etcd") return "";
  return options.state_dir + "/jobs";
}

scheduler::jobs::ClusterLoad JobLoadOf(const scheduler::OrchestratorSnapshot& totals) {
  scheduler::jobs::ClusterLoad load;
  load.waiting = totals.parked + totals.waiting;
  int64_t blocks = 0;
  int64_t held = 0;
  for (const auto& [name, model] : totals.models) {
    load.instances += model.decode_placeable;
    load.waiting += model.decode.queued_requests;
    load.waiting += std::max<int64_t>(
        model.prefill.queued_requests - kQueuedAtPrefill * model.prefill.instances, 0);
    blocks += model.decode.total_blocks;
    held += model.decode.held_blocks;
  }
  if (blocks > 0) load.free_kv = 1 - static_cast<double>(held) / static_cast<double>(blocks);
  return load;
}

std::unique_ptr<JobShell> MakeJobs(const OrchestratorOptions& options, OrchestratorShell* shell) {
  JobOptions jobs;
  jobs.folder = JobsFolder(options);
  if (jobs.folder.empty()) return nullptr;
  jobs.jobs_max = static_cast<uint64_t>(options.jobs_max);
  jobs.file_bytes_max = static_cast<uint64_t>(options.jobs_file_mib) << 20;
  jobs.core.room.limit_max = options.jobs_lines_max;
  return std::make_unique<JobShell>(
      std::move(jobs),
      JobShell::Hooks{.standing = [shell] { return shell->Standing(); },
                      .load =
                          [shell] {
                            const auto copy = shell->Count();
                            if (!copy.has_value() || shell->draining()) {
                              return scheduler::jobs::ClusterLoad{};
                            }
                            return JobLoadOf(copy->snapshot);
                          },
                      .waiting = [shell](const std::string& model,
                                         int64_t lines) { shell->QueueOffline(model, lines); }});
}

}  // namespace skein::services
