// Offline jobs at the orchestrator: what services/jobs needs of its flags and of its core.
#pragma once

#include <memory>
#include <string>

#include "scheduler/jobs/job_room.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "services/jobs/job_shell.h"
#include "services/orchestrator/options.h"
#include "services/orchestrator/orchestrator_shell.h"

namespace skein::services {

// --jobs-dir, or what stands for it; "": offline jobs are turned off.
std::string JobsFolder(const OrchestratorOptions& options);

// `totals`: as of OrchestratorCore::Totals. Lines of jobs are requests as others, so those that
// wait count, too: they have what is left of the cluster, and that is used up.
scheduler::jobs::ClusterLoad JobLoadOf(const scheduler::OrchestratorSnapshot& totals);

// Null: they are turned off. Not started. `shell` outlives what it returns.
std::unique_ptr<JobShell> MakeJobs(const OrchestratorOptions& options, OrchestratorShell* shell);

}  // namespace skein::services
