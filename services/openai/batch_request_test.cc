#include "services/openai/batch_request.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

const Json kLeast = {
    {"input_file_id", "file-1"}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};

TEST(BatchRequestTest, AllOfIt) {
  Json body = kLeast;
  body["metadata"] = {{"a", "b"}};
  body["output_expires_after"] = {{"anchor", "created_at"}, {"seconds", 3600}};
  BatchRequest batch;
  const MaybeError error = Parse(body.dump(), {}, &batch);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(batch.input_file, "file-1");
  EXPECT_EQ(batch.endpoint, "/v1/completions");
  EXPECT_EQ(batch.window_s, 86400);
  EXPECT_EQ(batch.metadata, (std::map<std::string, std::string>{{"a", "b"}}));
  EXPECT_EQ(batch.output_expires_after_s, 3600);
}

TEST(BatchRequestTest, ErrorsNameFieldAndValue) {
  struct Case {
    const char* name;
    Json value;
    const char* param;
    const char* message;
  };
  Json many = Json::object();
  for (int i = 0; i < 17; ++i) many["k" + std::to_string(i)] = "v";
  const std::vector<Case> cases = {
      {"endpoint", "/v1/embeddings", "endpoint",
       "Invalid value: '/v1/embeddings'. Supported values are: '/v1/chat/completions' and "
       "'/v1/completions'."},
      {"completion_window", "24", "completion_window", "Invalid value: '24'."},
      {"completion_window", nullptr, "completion_window",
       "Missing required parameter: 'completion_window'."},
      {"input_file_id", 5, "input_file_id", "Invalid type for 'input_file_id'"},
      {"metadata", many, "metadata",
       "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, "
       "but got an object with 17 properties instead."},
      {"metadata",
       {{"k", std::string(513, 'v')}},
       "metadata",
       "Invalid 'metadata.k': string too long. Expected a string with maximum length 512, but got "
       "a string with length 513 instead."},
      {"metadata", {{std::string(65, 'k'), "v"}}, "metadata", "Invalid key"},
      {"metadata", {{"k", 5}}, "metadata.k", "Invalid type for 'metadata.k'"},
      {"output_expires_after", {{"seconds", 3600}}, "output_expires_after.anchor", "Missing"},
      {"output_expires_after",
       {{"anchor", "created_at"}},
       "output_expires_after.seconds",
       "Missing"},
      {"output_expires_after",
       {{"anchor", "x"}, {"seconds", 3600}},
       "output_expires_after.anchor",
       "Invalid value: 'x'."},
      {"output_expires_after",
       {{"anchor", "created_at"}, {"seconds", 3599}},
       "output_expires_after.seconds",
       ""},
  };
  for (const Case& wrong : cases) {
    Json body = kLeast;
    body[wrong.name] = wrong.value;
    BatchRequest batch;
    const MaybeError error = Parse(body.dump(), {}, &batch);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param, wrong.param) << error->message;
    EXPECT_EQ(error->message.rfind(wrong.message, 0), 0u) << error->message;
  }
  Json body = kLeast;
  body["metadata"] = {{"k", std::string(510, 'v') + "éé"}};  // characters count, not bytes
  BatchRequest batch;
  EXPECT_FALSE(Parse(body.dump(), {}, &batch));
}

TEST(BatchRequestTest, Windows) {
  int64_t seconds = 0;
  for (const auto& [text, want] : std::vector<std::pair<const char*, int64_t>>{
           {"24h", 86400}, {"1h", 3600}, {"1m", 60}, {"90m", 5400}, {"30d", 2592000}}) {
    EXPECT_TRUE(ParseWindow(text, &seconds)) << text;
    EXPECT_EQ(seconds, want);
  }
  for (const char* bad :
       {"", "h", "24", "0h", "-1h", "1.5h", "31d", "721h", "1s", "24h ", "999999999h"}) {
    EXPECT_FALSE(ParseWindow(bad, &seconds)) << bad;
  }
  EXPECT_EQ(WindowText(86400), "24h");
  EXPECT_EQ(WindowText(5400), "90m");
  EXPECT_EQ(WindowText(61), "61s");
}

TEST(FileFormTest, FieldsAndErrors) {
  FileForm form;
  EXPECT_FALSE(ParseFileForm({{"purpose", "batch"}}, &form));
  EXPECT_EQ(form.expires_after_s, 0);
  EXPECT_FALSE(ParseFileForm({{"purpose", "batch"},
                              {"expires_after[anchor]", "created_at"},
                              {"expires_after[seconds]", "3600"}},
                             &form));
  EXPECT_EQ(form.expires_after_s, 3600);
  const auto param = [&form](const std::map<std::string, std::string>& fields) {
    const MaybeError error = ParseFileForm(fields, &form);
    return error ? error->param : "none";
  };
  EXPECT_EQ(param({}), "purpose");
  EXPECT_EQ(param({{"purpose", "batch_output"}}), "purpose");
  EXPECT_EQ(param({{"purpose", "fine-tune"}}), "purpose");
  EXPECT_EQ(param({{"purpose", "batch"}, {"model", "m"}}), "model");
  EXPECT_EQ(param({{"purpose", "batch"}, {"expires_after[seconds]", "3600"}}),
            "expires_after[anchor]");
  EXPECT_EQ(param({{"purpose", "batch"}, {"expires_after[anchor]", "created_at"}}),
            "expires_after[seconds]");
  EXPECT_EQ(param({{"purpose", "batch"},
                   {"expires_after[anchor]", "created_at"},
                   {"expires_after[seconds]", "3599"}}),
            "expires_after[seconds]");
}

}  // namespace
}  // namespace skein::services::openai
