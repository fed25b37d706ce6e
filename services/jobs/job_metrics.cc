#include "services/jobs/job_metrics.h"

#include <algorithm>
#include <map>
#include <string>

namespace skein::services {
namespace {

const char* StateOf(const scheduler::jobs::JobProgress& job) {
  if (job.end == scheduler::jobs::JobEnd::kCancelled) return "cancelling";
  if (job.end.has_value()) return "finalizing";
  return job.checked ? "in_progress" : "validating";
}

void SetLines(const scheduler::jobs::JobSnapshot& snapshot, Metrics* metrics) {
  const auto total = [metrics](const char* outcome, uint64_t value) {
    metrics->Total("skein_job_lines_total", "Lines of offline jobs, by what became of them.",
                   {{"outcome", outcome}}, value);
  };
  total("completed", snapshot.completed);
  total("failed", snapshot.failed);
  total("returned", snapshot.returned);
  total("duplicate", snapshot.duplicate);
  metrics->Gauge("skein_job_lines_running", "Lines of offline jobs that routers compute.")
      .Set(static_cast<double>(snapshot.in_flight));
  metrics
      ->Gauge("skein_job_lines_limit",
              "How many lines of offline jobs may be computed beside online traffic.")
      .Set(static_cast<double>(snapshot.limit));
}

}  // namespace

void SetJobMetrics(const std::optional<JobFigures>& figures, int64_t now_s, Metrics* metrics) {
  const JobFigures none;
  const JobFigures& all = figures.has_value() ? *figures : none;
  metrics->Gauge("skein_jobs_served", "1 while this orchestrator serves offline jobs, else 0.")
      .Set(all.serves ? 1 : 0);
  metrics
      ->Gauge("skein_jobs_refused",
              "1 while this orchestrator leads and cannot use the folder of offline jobs, else 0.")
      .Set(all.refused ? 1 : 0);
  metrics->Total("skein_job_store_failures_total",
                 "Times that the folder of offline jobs could not be read or written.", {},
                 all.store_failed);
  std::map<std::string, int> states = {
      {"validating", 0}, {"in_progress", 0}, {"finalizing", 0}, {"cancelling", 0}};
  double tokens_per_s = 0;
  double left_s = 0;
  int64_t lines_left = 0;
  int late = 0;
  for (const auto& [number, job] : all.snapshot.jobs) {
    ++states[StateOf(job)];
    tokens_per_s += job.tokens_per_s;
    left_s = std::max(left_s, job.left_s);
    if (!job.end.has_value()) lines_left += job.left;  // the others are given to nobody
    late += job.late ? 1 : 0;
  }
  for (const auto& [state, count] : states) {
    metrics->Gauge("skein_jobs", "Offline jobs that have not ended, by state.", {{"state", state}})
        .Set(count);
  }
  for (const char* outcome : {"completed", "expired", "cancelled", "failed"}) {
    const auto it = all.ended.find(outcome);
    metrics->Total("skein_jobs_ended_total", "Offline jobs that have ended, by outcome.",
                   {{"outcome", outcome}}, it == all.ended.end() ? 0 : it->second);
  }
  SetLines(all.snapshot, metrics);
  metrics->Gauge("skein_job_lines_left", "Lines of offline jobs that have no result yet.")
      .Set(static_cast<double>(lines_left));
  metrics
      ->Gauge("skein_job_tokens_per_second",
              "Tokens of prompts and answers of offline jobs per second, of late.")
      .Set(tokens_per_s);
  metrics
      ->Gauge("skein_job_left_seconds",
              "Estimated time until the last of the offline jobs that run has ended; 0: not known.")
      .Set(left_s);
  metrics
      ->Gauge("skein_jobs_late", "Offline jobs that will not end within their completion_window.")
      .Set(late);
  metrics
      ->Gauge("skein_job_oldest_seconds",
              "How long ago the oldest offline job that has not ended was created.")
      .Set(all.oldest_created_s == 0
               ? 0
               : static_cast<double>(std::max<int64_t>(now_s - all.oldest_created_s, 0)));
}

}  // namespace skein::services
