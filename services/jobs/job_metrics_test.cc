#include "services/jobs/job_metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

using ::testing::HasSubstr;

TEST(JobMetrics, AllSeriesAreThereWithoutJobs) {
  Metrics metrics;
  SetJobMetrics(std::nullopt, 1000, &metrics);
  const std::string text = metrics.Render();
  for (const char* series :
       {"skein_jobs_served 0", "skein_jobs{state=\"validating\"} 0",
        "skein_jobs_ended_total{outcome=\"expired\"} 0",
        "skein_job_lines_total{outcome=\"completed\"} 0", "skein_job_lines_left 0",
        "skein_jobs_refused 0", "skein_job_store_failures_total 0", "skein_job_lines_limit 0",
        "skein_job_oldest_seconds 0"}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
}

TEST(JobMetrics, TellsOfTheJobsThatHaveNotEnded) {
  JobFigures figures;
  figures.serves = true;
  figures.oldest_created_s = 900;
  figures.ended["completed"] = 3;
  figures.snapshot.completed = 40;
  figures.snapshot.in_flight = 5;
  figures.store_failed = 7;
  figures.snapshot.jobs[1] = {
      .checked = true, .left = 30, .tokens_per_s = 10, .left_s = 60, .late = true};
  figures.snapshot.jobs[2] = {.checked = true, .left = 12, .tokens_per_s = 5, .left_s = 90};
  figures.snapshot.jobs[3] = {
      .checked = true, .end = scheduler::jobs::JobEnd::kCancelled, .left = 9};
  Metrics metrics;
  SetJobMetrics(figures, 1000, &metrics);
  const std::string text = metrics.Render();
  for (const char* series :
       {"skein_jobs_served 1", "skein_jobs{state=\"in_progress\"} 2",
        "skein_jobs{state=\"cancelling\"} 1", "skein_jobs_ended_total{outcome=\"completed\"} 3",
        "skein_job_lines_total{outcome=\"completed\"} 40", "skein_job_lines_running 5",
        "skein_job_lines_left 42", "skein_job_store_failures_total 7",
        "skein_job_tokens_per_second 15", "skein_job_left_seconds 90", "skein_jobs_late 1",
        "skein_job_oldest_seconds 100"}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
}

TEST(JobMetrics, TellsOfAFolderThatCannotBeUsed) {
  JobFigures figures;
  figures.refused = true;
  Metrics metrics;
  SetJobMetrics(figures, 1000, &metrics);
  EXPECT_THAT(metrics.Render(), HasSubstr("skein_jobs_refused 1"));
  EXPECT_THAT(metrics.Render(), HasSubstr("skein_jobs_served 0"));
}

}  // namespace
}  // namespace skein::services
