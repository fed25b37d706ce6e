#include "services/openai/body_check.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<Parameter>& Rows() {
  static const std::vector<Parameter> rows = {
      {.name = "model", .type = Type::kString, .required = true},
      {.name = "max_tokens", .type = Type::kInt, .low = 0, .high = 5},
      {.name = "options", .type = Type::kObject},
      {.name = "options.usage", .type = Type::kBool},
      {.name = "user", .support = Support::kIgnored, .type = Type::kString},
      {.name = "regex", .support = Support::kRefused, .meaning = "no grammars."},
      {.name = "penalty", .support = Support::kRefused, .neutral = "[1]"},
      {.name = "tools",
       .support = Support::kRefused,
       .type = Type::kArray,
       .unless = R"({"tool_choice": "none"})"},
      {.name = "tool_choice", .type = Type::kString},
  };
  return rows;
}

MaybeError Check(Json body, BodyNotes* notes, bool strict = false) {
  if (!body.contains("model")) body["model"] = "m";
  return CheckBody(Rows(), body, strict, notes);
}

std::string ParamOf(const Json& body) {
  BodyNotes notes;
  const MaybeError error = Check(body, &notes);
  return error ? error->param : "";
}

TEST(BodyCheckTest, TypesAndRanges) {
  EXPECT_EQ(ParamOf({{"max_tokens", 5.0}}), "");
  EXPECT_EQ(ParamOf({{"max_tokens", 6}}), "max_tokens");
  EXPECT_EQ(ParamOf({{"max_tokens", 1.5}}), "max_tokens");
  EXPECT_EQ(ParamOf({{"max_tokens", "5"}}), "max_tokens");
  EXPECT_EQ(ParamOf({{"max_tokens", nullptr}}), "");
  EXPECT_EQ(ParamOf({{"options", {{"usage", 1}}}}), "options.usage");
  EXPECT_EQ(ParamOf({{"user", 5}}), "user");
  EXPECT_EQ(ParamOf({{"model", nullptr}}), "model");
}

TEST(BodyCheckTest, RefusedUnlessTheyAskForNothing) {
  for (const Json& nothing : {Json(false), Json(""), Json::array(), Json::object(), Json()}) {
    EXPECT_EQ(ParamOf({{"regex", nothing}}), "") << nothing;
  }
  EXPECT_EQ(ParamOf({{"regex", "a*"}}), "regex");
  EXPECT_EQ(ParamOf({{"regex", 0}}), "regex");
  EXPECT_EQ(ParamOf({{"penalty", 1.0}}), "");
  EXPECT_EQ(ParamOf({{"penalty", false}}), "penalty");
  const Json tools = Json::array({1});
  EXPECT_EQ(ParamOf({{"tools", tools}}), "tools");
  EXPECT_EQ(ParamOf({{"tools", tools}, {"tool_choice", "auto"}}), "tools");
  EXPECT_EQ(ParamOf({{"tools", tools}, {"tool_choice", "none"}}), "");
  BodyNotes notes;
  EXPECT_EQ(Check({{"regex", "a"}}, &notes)->message,
            "Unsupported parameter: 'regex': no grammars.");
}

TEST(BodyCheckTest, UnknownOnesAreNotedWithWhatMayBeMeant) {
  BodyNotes notes;
  ASSERT_FALSE(Check({{"max_token", 3}, {"zzz", 1}, {"options", {{"usag", true}}}}, &notes));
  EXPECT_EQ(notes.unknown, 3);
  EXPECT_EQ(notes.warnings[0], "unknown parameter 'max_token' (did you mean 'max_tokens'?)");
  EXPECT_EQ(notes.warnings[1], "unknown parameter 'zzz'");
  EXPECT_EQ(notes.warnings[2], "unknown parameter 'options.usag' (did you mean 'options.usage'?)");
  notes = {};
  const MaybeError error = Check({{"max_token", 3}}, &notes, /*strict=*/true);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->code, "unknown_parameter");
  EXPECT_EQ(error->param, "max_token");
}

// A header must not carry text made up by a client, and many names must not cost much.
TEST(BodyCheckTest, HostileNames) {
  BodyNotes notes;
  Json body = {{"a\r\nSet-Cookie: x=\"1\"", 1}, {"options.usage", true}};
  body[std::string(100'000, 'm')] = 1;
  for (int i = 0; i < 1000; ++i) body["max_token" + std::to_string(i)] = i;
  ASSERT_FALSE(Check(body, &notes));
  EXPECT_EQ(notes.unknown, 1003);
  EXPECT_EQ(notes.warnings.size(), 8u);
  EXPECT_EQ(notes.warnings[0], "unknown parameter 'a??Set-Cookie:?x=?1?'");
  EXPECT_EQ(notes.warnings[1].substr(0, 33), "unknown parameter 'options.usage'");
  for (const std::string& warning : notes.warnings) {
    EXPECT_LT(warning.size(), 150u);
    for (const char c : warning) EXPECT_TRUE(c >= 32 && c < 127);
  }
}

}  // namespace
}  // namespace skein::services::openai
