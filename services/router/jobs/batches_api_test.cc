// /v1/batches of a router, over HTTP.
#include <gtest/gtest.h>

#include "services/openai/answer_schemas.h"
#include "services/router/jobs/testing/jobs_fixture.h"
#include "services/router/testing/fits_schema.h"

namespace skein::services::testing {
namespace {

class BatchesTest : public JobsTest {
 protected:
  void SetUp() override {
    options_.client.pause_us = 1000;
    service_.Put("file-1", "{}");
    StartJobs();
  }

  http::Response Get(const std::string& path) { return Call("GET", path); }
  http::Response Post(const std::string& path, const Json& body) {
    return Call("POST", path, body.dump());
  }
  Json Ask(const std::string& path, const Json& body) {
    const http::Response response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body, nullptr, false);
  }
  http::Response Cancel(const std::string& id) {
    return Call("POST", "/v1/batches/" + id + "/cancel");
  }

  const Json kBody = {{"input_file_id", "file-1"},
                      {"endpoint", "/v1/chat/completions"},
                      {"completion_window", "24h"},
                      {"metadata", {{"team", "a"}}}};
};

TEST_F(BatchesTest, ABatchIsCreatedAndRetrieved) {
  const Json batch = Ask("/v1/batches", kBody);
  const Json schemas = openai::AnswerSchemas();
  ExpectFits(batch, schemas["Batch"], schemas, "batch");
  const std::string id = batch["id"];
  EXPECT_EQ(id.rfind("batch_", 0), 0u);
  EXPECT_EQ(batch["object"], "batch");
  EXPECT_EQ(batch["status"], "validating");
  EXPECT_EQ(batch["completion_window"], "24h");
  EXPECT_EQ(batch["errors"], nullptr);
  EXPECT_EQ(batch["output_file_id"], nullptr);
  EXPECT_EQ(batch["metadata"]["team"], "a");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 0}, {"completed", 0}, {"failed", 0}}));
  EXPECT_EQ(batch["expires_at"].get<int64_t>() - batch["created_at"].get<int64_t>(), 86400);
  EXPECT_EQ(Json::parse(Get("/v1/batches/" + id).body), batch);
  const auto created = service_.created();
  ASSERT_EQ(created.size(), 1u);
  EXPECT_EQ(created[0].window_s(), 86400u);
}

TEST_F(BatchesTest, AllThatIsKnownOfAJobIsInTheObject) {
  v1::JobStatus job;
  job.set_id("batch_9");
  job.set_input_file("file-1");
  job.set_endpoint("/v1/completions");
  job.set_window_s(3600);
  job.set_state(v1::JOB_STATE_FAILED);
  v1::JobError& error = *job.add_errors();
  error.set_code("invalid_json_line");
  error.set_message("not JSON");
  error.set_line(3);
  job.set_output_file("file-2");
  job.set_lines(5);
  job.set_completed(3);
  job.set_failed(1);
  job.set_running(1);
  job.set_prompt_tokens(10);
  job.set_cached_tokens(2);
  job.set_output_tokens(7);
  job.set_tokens_per_s(1.5);
  job.set_left_s(60);
  job.set_late(true);
  job.set_failed_s(1'700'000'001);
  job.set_model("m");
  service_.PutJob(job);
  const Json batch = Json::parse(Get("/v1/batches/batch_9").body);
  const Json schemas = openai::AnswerSchemas();
  ExpectFits(batch, schemas["Batch"], schemas, "batch");
  EXPECT_EQ(batch["status"], "failed");
  EXPECT_EQ(batch["completion_window"], "1h");
  EXPECT_EQ(batch["errors"]["data"][0], Json({{"code", "invalid_json_line"},
                                              {"message", "not JSON"},
                                              {"param", nullptr},
                                              {"line", 3}}));
  EXPECT_EQ(batch["output_file_id"], "file-2");
  EXPECT_EQ(batch["failed_at"], 1'700'000'001);
  EXPECT_EQ(batch["request_counts"], Json({{"total", 5}, {"completed", 3}, {"failed", 1}}));
  EXPECT_EQ(batch["usage"]["total_tokens"], 17);
  EXPECT_EQ(batch["usage"]["input_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(batch["x_skein"],
            Json({{"running", 1}, {"tokens_per_s", 1.5}, {"left_s", 60}, {"late", true}}));
  EXPECT_EQ(batch["model"], "m");
}

TEST_F(BatchesTest, PagesAreNewestFirst) {
  for (int i = 0; i < 3; ++i) Ask("/v1/batches", kBody);
  const Json first = Json::parse(Get("/v1/batches?limit=2").body);
  const Json schemas = openai::AnswerSchemas();
  ExpectFits(first, schemas["Batches"], schemas, "batches");
  EXPECT_EQ(first["data"].size(), 2u);
  EXPECT_EQ(first["has_more"], true);
  EXPECT_EQ(first["data"][0]["id"], service_.created().back().id());
  const std::string last = first["last_id"];
  const Json second = Json::parse(Get("/v1/batches?limit=2&after=" + last).body);
  EXPECT_EQ(second["data"].size(), 1u);
  EXPECT_EQ(second["has_more"], false);
  for (const char* query : {"limit=0", "limit=101", "after=batch_9", "order=asc"}) {
    const http::Response response = Get(std::string("/v1/batches?") + query);
    EXPECT_EQ(response.status, 400) << query;
    EXPECT_EQ(ErrorOf(response)["param"], std::string(query).substr(0, 5)) << response.body;
  }
}

TEST_F(BatchesTest, CancelledOnce) {
  const std::string id = Ask("/v1/batches", kBody)["id"];
  const http::Response cancelled = Cancel(id);
  ASSERT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_EQ(Json::parse(cancelled.body)["status"], "cancelling");
  v1::JobStatus ended;
  ended.set_id("batch_9");
  ended.set_state(v1::JOB_STATE_COMPLETED);
  service_.PutJob(ended);
  const http::Response refused = Cancel("batch_9");
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(ErrorOf(refused)["message"], "Cannot cancel a batch with status 'completed'.");
}

TEST_F(BatchesTest, WhatDoesNotExistIsNamed) {
  EXPECT_EQ(ErrorOf(Get("/v1/batches/batch_9"))["message"], "No batch found with id 'batch_9'.");
  EXPECT_EQ(Cancel("batch_9").status, 404);
  Json body = kBody;
  body["input_file_id"] = "file-9";
  const http::Response response = Post("/v1/batches", body);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(ErrorOf(response)["param"], "input_file_id");
  EXPECT_EQ(ErrorOf(response)["message"], "No such File object: file-9");
}

TEST_F(BatchesTest, ACallThatIsRepeatedIsTheSameBatch) {
  service_.FailNext(2, absl::UnavailableError("not yet"));
  Ask("/v1/batches", kBody);
  EXPECT_EQ(service_.created().size(), 1u);
}

TEST_F(BatchesTest, UnknownParametersAreNamed) {
  Json body = kBody;
  body["colour"] = "red";
  const http::Response response = Post("/v1/batches", body);
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(http::FindHeader(response.headers, "X-Skein-Warning").find("colour"),
            std::string::npos);
}

}  // namespace
}  // namespace skein::services::testing
