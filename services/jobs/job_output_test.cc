#include "services/jobs/job_output.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

nlohmann::json Parsed(const OutputLine& line) {
  const std::string text = OutputText(line);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(text.back(), '\n');
  return nlohmann::json::parse(text);
}

TEST(JobOutput, AnAnswerIsAsOpenAiHasIt) {
  const auto json = Parsed({"batch_abc", 3, "my-\"id", 200, "req-1", R"({"id":"cmpl-1"})"});
  EXPECT_EQ(json["id"], "batch_req_abc_3");
  EXPECT_EQ(json["custom_id"], "my-\"id");
  EXPECT_EQ(json["response"]["status_code"], 200);
  EXPECT_EQ(json["response"]["request_id"], "req-1");
  EXPECT_EQ(json["response"]["body"]["id"], "cmpl-1");
  EXPECT_TRUE(json["error"].is_null());
}

TEST(JobOutput, AnAnswerStaysOnOneLineWhateverItsBody) {
  EXPECT_EQ(Parsed({"b", 1, "a", 400, "r", "{\n \"x\": 1\n}"})["response"]["body"]["x"], 1);
  EXPECT_EQ(Parsed({"b", 1, "a", 500, "r", "no\njson"})["response"]["body"], "no\njson");
}

TEST(JobOutput, WithoutAResponseThereIsAnError) {
  const auto expired = Parsed({"b", 1, "a", 0, "", ExpiredBody()});
  EXPECT_TRUE(expired["response"].is_null());
  EXPECT_EQ(expired["error"]["code"], "batch_expired");
  const auto nested = Parsed({"b", 1, "a", 0, "", R"({"error":{"code":"c","message":"m"}})"});
  EXPECT_EQ(nested["error"]["code"], "c");
  EXPECT_EQ(Parsed({"b", 1, "a", 0, "", "?"})["error"]["code"], "server_error");
}

}  // namespace
}  // namespace skein::services
