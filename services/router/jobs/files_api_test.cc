// /v1/files of a router, over HTTP.
#include <gtest/gtest.h>

#include "services/openai/answer_schemas.h"
#include "services/router/jobs/testing/jobs_fixture.h"
#include "services/router/testing/fits_schema.h"

namespace skein::services::testing {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string Field(const std::string& name, const std::string& value) {
  return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n";
}

std::string FilePart(const std::string& name, const std::string& content) {
  return "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name +
         "\"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + "\r\n";
}

class FilesTest : public JobsTest {
 protected:
  void SetUp() override { options_.client.pause_us = 1000; }
  void Start() { StartJobs(); }

  http::Response Upload(const std::string& form) {
    return Call("POST", "/v1/files", form + "--b--\r\n",
                {{"Content-Type", "multipart/form-data; boundary=b"}});
  }
  http::Response Ask(const char* method, const std::string& path) { return Call(method, path); }
};

TEST_F(FilesTest, AFileIsStoredReadListedAndDeleted) {
  Start();
  const http::Response stored = Upload(Field("purpose", "batch") + FilePart("a.jsonl", "{}\n{}"));
  ASSERT_EQ(stored.status, 200) << stored.body;
  const Json file = Json::parse(stored.body);
  const Json schemas = openai::AnswerSchemas();
  ExpectFits(file, schemas["File"], schemas, "file");
  EXPECT_EQ(file["object"], "file");
  EXPECT_EQ(file["bytes"], 5);
  EXPECT_EQ(file["filename"], "a.jsonl");
  EXPECT_EQ(file["purpose"], "batch");
  EXPECT_EQ(file["status"], "processed");
  const std::string id = file["id"];
  EXPECT_EQ(id.rfind("file-", 0), 0u);
  EXPECT_EQ(Json::parse(Ask("GET", "/v1/files/" + id).body), file);
  const http::Response content = Ask("GET", "/v1/files/" + id + "/content");
  EXPECT_EQ(content.body, "{}\n{}");
  EXPECT_EQ(http::FindHeader(content.headers, "Content-Type"), "application/octet-stream");
  const Json list = Json::parse(Ask("GET", "/v1/files").body);
  ExpectFits(list, schemas["Files"], schemas, "files");
  EXPECT_EQ(list["data"][0], file);
  const Json deleted = Json::parse(Ask("DELETE", "/v1/files/" + id).body);
  EXPECT_EQ(deleted, Json({{"id", id}, {"object", "file"}, {"deleted", true}}));
  const Json gone = ErrorOf(Ask("GET", "/v1/files/" + id));
  EXPECT_EQ(gone["message"], "No such File object: " + id);
  EXPECT_EQ(gone["param"], "id");
  EXPECT_EQ(Ask("DELETE", "/v1/files/" + id).status, 404);
  EXPECT_EQ(Ask("GET", "/v1/files/" + id + "/content").status, 404);
  const Json empty = Json::parse(Ask("GET", "/v1/files").body);
  ExpectFits(empty, schemas["Files"], schemas, "no files");
  EXPECT_TRUE(empty["data"].empty());
}

// OpenAI's npm client sends fields in the caller's order, usually the file first.
TEST_F(FilesTest, TheOrderOfTheFieldsDoesNotMatter) {
  Start();
  const std::string fields = Field("purpose", "batch") +
                             Field("expires_after[anchor]", "created_at") +
                             Field("expires_after[seconds]", "3600");
  const std::string small = FilePart("a", "{}");
  const std::string large = FilePart("a", std::string(3 << 20, 'x'));
  for (const std::string& form : {fields + small, small + fields, fields + large, large + fields}) {
    const http::Response stored = Upload(form);
    ASSERT_EQ(stored.status, 200) << stored.body;
    const Json file = Json::parse(stored.body);
    // The expiry is by the router's clock, so it is compared with what is given without a field.
    const http::Response other = Upload(Field("purpose", "batch") + small);
    const int64_t later = Json::parse(other.body)["expires_at"];
    const int64_t apart = later - file["expires_at"].get<int64_t>();
    EXPECT_GE(apart, 30 * 86400 - 3600);
    EXPECT_LT(apart, 30 * 86400 - 3600 + 600);
  }
}

TEST_F(FilesTest, ALongFileIsPassedOnWhole) {
  Start();
  std::string content;
  for (int i = 0; content.size() < (5 << 20); ++i) content += std::to_string(i) + "\n";
  const http::Response stored = Upload(FilePart("a", content) + Field("purpose", "batch"));
  ASSERT_EQ(stored.status, 200) << stored.body;
  const std::string id = Json::parse(stored.body)["id"];
  const auto files = service_.files();
  EXPECT_TRUE(files.at(id).content == content);
  EXPECT_GT(files.at(id).messages, 2u);
  EXPECT_TRUE(Ask("GET", "/v1/files/" + id + "/content").body == content);
}

TEST_F(FilesTest, AWrongFormIsRefusedByFieldAndValue) {
  options_.files.file_bytes_max = 2 << 20;
  Start();
  const std::string file = FilePart("a", "{}"), purpose = Field("purpose", "batch");
  struct Case {
    std::string form;
    int status;
    Json param;
  };
  const std::vector<Case> cases = {
      {purpose, 400, "file"},
      {file, 400, "purpose"},
      {file + Field("purpose", "fine-tune"), 400, "purpose"},
      {file + Field("purpose", "batch_output"), 400, "purpose"},
      {FilePart("a", std::string(1 << 21, 'x')) + Field("purpose", "vision"), 400, "purpose"},
      {purpose + file + file, 400, "file"},
      {purpose + FilePart("a", ""), 400, "file"},
      {purpose + Field("file", "{}"), 400, "file"},
      {purpose + FilePart(std::string(256, 'n'), "{}"), 400, "file"},
      {purpose + FilePart("a\xff", "{}"), 400, "file"},
      {purpose + Field("x", "y") + file, 400, "x"},
      {purpose + Field("x", std::string(2000, 'y')) + file, 400, "x"},
      {purpose + FilePart("a", std::string((2 << 20) + 1, 'x')), 413, "file"},
      {"no form", 400, nullptr},
  };
  for (const Case& wrong : cases) {
    const http::Response response = Upload(wrong.form);
    EXPECT_EQ(response.status, wrong.status) << response.body;
    EXPECT_EQ(ErrorOf(response)["param"], wrong.param) << response.body;
  }
  for (const auto& [id, kept] : service_.files()) ADD_FAILURE() << id << " was stored";
  const http::Response json = Call("POST", "/v1/files", "{}");
  EXPECT_EQ(json.status, 415);
  const http::Response cut =
      http::testing::Fetch(server_->port(), "POST", "/v1/files", purpose + file,
                           {{"Content-Type", "multipart/form-data; boundary=b"}});
  EXPECT_EQ(cut.status, 400) << cut.body;
}

TEST_F(FilesTest, PagesFollowOneAnother) {
  Start();
  for (const char* id : {"file-1", "file-2", "file-3"}) service_.Put(id, "{}");
  const Json first = Json::parse(Ask("GET", "/v1/files?limit=2").body);
  EXPECT_EQ(first["first_id"], "file-3");
  EXPECT_EQ(first["last_id"], "file-2");
  EXPECT_EQ(first["has_more"], true);
  const Json second = Json::parse(Ask("GET", "/v1/files?limit=2&after=file-2").body);
  EXPECT_EQ(second["data"].size(), 1u);
  EXPECT_EQ(second["has_more"], false);
  EXPECT_EQ(Json::parse(Ask("GET", "/v1/files?order=asc").body)["first_id"], "file-1");
  EXPECT_TRUE(Json::parse(Ask("GET", "/v1/files?purpose=batch_output").body)["data"].empty());
  for (const auto& [query, param] : Fields{{"limit=0", "limit"},
                                           {"limit=10001", "limit"},
                                           {"limit=x", "limit"},
                                           {"order=up", "order"},
                                           {"after=file-9", "after"},
                                           {"x=1", "x"}}) {
    const http::Response response = Ask("GET", "/v1/files?" + query);
    EXPECT_EQ(response.status, 400) << query;
    EXPECT_EQ(ErrorOf(response)["param"], param) << response.body;
  }
}

TEST_F(FilesTest, AnIdThatIsNotUtf8NamesNothing) {
  Start();
  for (const char* path : {"/v1/files/%ff", "/v1/files/%ff/content"}) {
    EXPECT_EQ(Ask("GET", path).status, 404) << path;
  }
  EXPECT_EQ(Ask("DELETE", "/v1/files/%ff").status, 404);
  EXPECT_EQ(Ask("GET", "/v1/files?after=%ff").status, 400);
}

// The id is the router's, so that it is the same file whoever stores it in the end.
TEST_F(FilesTest, CallsAreRepeatedUntilAnOrchestratorLeads) {
  Start();
  service_.FailNext(3, absl::UnavailableError("the store does not answer"));
  EXPECT_EQ(Upload(Field("purpose", "batch") + FilePart("a", "{}")).status, 200);
  EXPECT_EQ(service_.files().size(), 1u);
  EXPECT_GE(service_.calls(), 4);
}

class FailureTest : public FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    options_.client.retry_for_us = 1;
  }
};

TEST_F(FailureTest, AnOrchestratorThatNeverAnswersIsA503WithRetryAfter) {
  service_.FailAll(absl::UnavailableError("no"));
  Start();
  const std::string file = Field("purpose", "batch") + FilePart("a", "{}");
  const std::string large = Field("purpose", "batch") + FilePart("a", std::string(2 << 20, 'x'));
  for (const http::Response& response :
       {Ask("GET", "/v1/files"), Ask("GET", "/v1/files/x"), Ask("GET", "/v1/files/x/content"),
        Ask("DELETE", "/v1/files/x"), Upload(file), Upload(large)}) {
    EXPECT_EQ(response.status, 503) << response.body;
    EXPECT_FALSE(http::FindHeader(response.headers, "Retry-After").empty());
    EXPECT_EQ(ErrorOf(response)["code"], "unavailable");
  }
}

TEST_F(FailureTest, WithoutJobsTheErrorSaysSo) {
  service_.FailAll(absl::FailedPreconditionError("jobs are turned off (--jobs-dir)"));
  Start();
  const http::Response response = Ask("GET", "/v1/files");
  EXPECT_EQ(response.status, 501);
  EXPECT_EQ(ErrorOf(response)["code"], "jobs_off");
  EXPECT_EQ(ErrorOf(response)["message"], "jobs are turned off (--jobs-dir)");
}

TEST_F(FilesTest, NoRoomIsA429) {
  service_.FailAll(absl::ResourceExhaustedError("the store is full"));
  Start();
  EXPECT_EQ(Upload(Field("purpose", "batch") + FilePart("a", "{}")).status, 429);
}

TEST_F(FilesTest, AnUploadWhoseClientLeavesLeavesNothing) {
  Start();
  http::testing::RawClient client(server_->port());
  client.Send(
      "POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n"
      "Content-Length: 9000000\r\n\r\n" +
      FilePart("a", std::string(2 << 20, 'x')));
  client.Close();
  EXPECT_EQ(Upload(Field("purpose", "batch") + FilePart("b", "{}")).status, 200);
  EXPECT_EQ(service_.files().size(), 1u);
}

TEST_F(FilesTest, ARouterThatDrainsRefusesUploads) {
  options_.files.draining = [] { return true; };
  Start();
  const http::Response response = Upload(Field("purpose", "batch") + FilePart("a", "{}"));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(ErrorOf(response)["code"], "draining");
}

}  // namespace
}  // namespace skein::services::testing
