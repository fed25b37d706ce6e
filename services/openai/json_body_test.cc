#include "services/openai/json_body.h"

#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

TEST(ParseJsonTest, KeepsOrderAndTakesTheLastOfDuplicates) {
  Json json;
  ASSERT_FALSE(ParseJson(R"({"z":1,"a":[1,{"x":null},"s"],"z":{"k":-2.5},"b":true})", &json));
  EXPECT_EQ(json.dump(), R"({"z":{"k":-2.5},"a":[1,{"x":null},"s"],"b":true})");
}

TEST(ParseJsonTest, RefusesWhatIsNotJson) {
  for (const std::string text :
       {"", " ", "{", "{}}", "{\"a\":}", "[1,]", "NaN", "{\"a\":NaN}", "1e999", "-1e999", "01",
        "'a'", "{\"a\" 1}", "\"\xFF\"", "\"\xED\xA0\x80\"", "\"\\ud800\"", "\"\x01\"", "{} {}",
        "// c\n{}"}) {
    Json json;
    const MaybeError error = ParseJson(text, &json);
    ASSERT_TRUE(error.has_value()) << text;
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->code, "invalid_json");
  }
}

TEST(ParseJsonTest, DepthIsBounded) {
  Json json;
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_FALSE(ParseJson(nested(kJsonDepthMax), &json));
  EXPECT_TRUE(ParseJson(nested(kJsonDepthMax + 1), &json));
  EXPECT_TRUE(ParseJson(std::string(1'000'000, '['), &json));
  EXPECT_TRUE(ParseJson(std::string(1'000'000, '{'), &json));
}

TEST(ParseJsonTest, ManyKeysAreNotQuadratic) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"" + std::to_string(i) + "\":1,";
  text += "\"7\":2}";
  Json json;
  ASSERT_FALSE(ParseJson(text, &json));
  EXPECT_EQ(json.size(), 200'000u);
}

}  // namespace
}  // namespace skein::services::openai
