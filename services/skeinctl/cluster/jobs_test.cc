#include "services/skeinctl/cluster/jobs.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

v1::JobStatus Example() {
  v1::JobStatus job;
  job.set_id("batch_1");
  job.set_state(v1::JOB_STATE_IN_PROGRESS);
  job.set_endpoint("/v1/completions");
  job.set_input_file("file-1");
  job.set_model("m");
  job.set_lines(100);
  job.set_completed(40);
  job.set_failed(2);
  job.set_running(8);
  job.set_tokens_per_s(12.34);
  job.set_left_s(75);
  job.set_late(true);
  job.set_created_s(1000);
  return job;
}

TEST(Jobs, TheTableHasARowAJob) {
  v1::ListJobsResponse response;
  EXPECT_EQ(JobsTable(response, 1000), "no jobs\n");
  *response.add_jobs() = Example();
  response.set_more(true);
  const std::string table = JobsTable(response, 1090);
  for (const char* part : {"batch_1", "in_progress", "100", "12.3", "1 min 15 s (late)",
                           "1 min 30 s ago", "--limit"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

TEST(Jobs, OneJobIsShownWithTheErrorsOfItsInput) {
  v1::JobStatus job = Example();
  job.set_state(v1::JOB_STATE_FAILED);
  v1::JobError* const error = job.add_errors();
  error->set_code("invalid_json_line");
  error->set_message("This line is not parseable as valid JSON.");
  error->set_line(7);
  const std::string text = JobText(job, 1000);
  EXPECT_NE(text.find("line 7: invalid_json_line: This line"), std::string::npos) << text;
  EXPECT_NE(text.find("completed 40, failed 2, running 8"), std::string::npos) << text;
}

TEST(Jobs, JsonHasNullForWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(JobJson(Example()));
  EXPECT_EQ(json["state"], "in_progress");
  EXPECT_EQ(json["left_s"], 75);
  EXPECT_EQ(json["late"], true);
  EXPECT_TRUE(json["output_file"].is_null());
  EXPECT_TRUE(json["completed_s"].is_null());
  EXPECT_TRUE(json["errors"].empty());
}

}  // namespace
}  // namespace skein::services
