#include "services/skeinctl/planning/plan.h"

#include <algorithm>
#include <iostream>
#include <sstream>
#include <tuple>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/latency/builtin_models.h"

namespace skein::services {
namespace {

PlanLines Lines(PlanPolicy policy = PlanPolicy::kTetris) {
  return PlanLines(scheduler::Llama3_8bA100(), 8, 0, policy);
}

TEST(Plan, AnswersALineWithAPlan) {
  PlanLines lines = Lines();
  const auto answer = lines.Answer(
      R"({"prompt_tokens": 131072, "queue_s": [0,0,0,0,0,0,0,0,.31,.31,.31,.31,.31,.31,.31,.31]})");
  EXPECT_FALSE(answer.ok());  // JSON numbers begin with a digit
  const auto second = lines.Answer(
      R"({"queue_s": [0,0,0,0,0,0,0,0,0.31,0.31,0.31,0.31,0.31,0.31,0.31,0.31], "prompt_tokens": 131072})");
  ASSERT_TRUE(second.ok()) << second.status();
  const auto json = nlohmann::json::parse(*second);
  ASSERT_EQ(json["chunks"].size(), 2u);
  EXPECT_EQ(json["chunks"][0]["instances"].size(), 8u);
  EXPECT_EQ(json["chunks"][1]["instances"].size(), 16u);
  EXPECT_EQ(json["chunks"][0]["tokens"].get<int>() + json["chunks"][1]["tokens"].get<int>(),
            131072);
  EXPECT_EQ(json["chunks"][0]["start_s"], 0.0);
  EXPECT_EQ(json["chunks"][1]["end_s"], json["ttft_s"]);
}

TEST(Plan, NamesTheTpOfEachChunkOfAProfileWithTensorShapes) {
  const scheduler::SpCoefficients k{0.1, 1e-5, 0, 0}, faster{0.05, 1e-5, 0, 0};
  const auto model =
      *scheduler::LatencyModel::Make({{1, {0, 1e-3, 0, 0}}, {2, k}}, {{2, 2, faster}});
  PlanLines lines(model, 2, 0, PlanPolicy::kTetris);
  const auto answer = lines.Answer(R"({"prompt_tokens": 1000, "queue_s": [0, 0]})");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(nlohmann::json::parse(*answer)["chunks"][0]["tp"], 2);
  const auto plain = Lines().Answer(R"({"prompt_tokens": 1000, "queue_s": [0, 0]})");
  EXPECT_FALSE(nlohmann::json::parse(*plain)["chunks"][0].contains("tp"));
}

// Three instances of a node and one of the next are no tensor groups of two.
TEST(Plan, TimesAreThoseOfTheTpOfEachChunk) {
  const scheduler::SpCoefficients k{0.1, 1e-5, 0, 0}, faster{0.05, 1e-5, 0, 0};
  const auto model = scheduler::LatencyModel::Make({{1, {0, 1e-3, 0, 0}}, {4, k}}, {{4, 2, faster}})
                         ->Within({.tp_max = 3});
  PlanLines lines(model, 3, 0, PlanPolicy::kTetris);
  const auto answer = lines.Answer(R"({"prompt_tokens": 1000, "queue_s": [0, 0, 0, 0]})");
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto json = nlohmann::json::parse(*answer);
  ASSERT_EQ(json["chunks"].size(), 1u) << *answer;
  const auto& chunk = json["chunks"][0];
  EXPECT_EQ(chunk["instances"].size(), 4u);
  EXPECT_EQ(chunk["tp"], 1);
  EXPECT_EQ(chunk["start_s"], 0.0);
  EXPECT_NEAR(chunk["end_s"].get<double>(), 0.11, 1e-12);
  EXPECT_EQ(json["ttft_s"], chunk["end_s"]);
}

TEST(Plan, PoliciesOrderAsTheyShould) {
  const char* line =
      R"({"prompt_tokens": 60000, "queue_s": [0, 0.4, 0.9, 3, 0.1, 0.2, 1, 1.5, 2]})";
  double ttft_s[3];
  for (const PlanPolicy policy : {PlanPolicy::kSingle, PlanPolicy::kTetris, PlanPolicy::kRolling}) {
    const auto answer = Lines(policy).Answer(line);
    ASSERT_TRUE(answer.ok()) << answer.status();
    ttft_s[static_cast<int>(policy)] = nlohmann::json::parse(*answer)["ttft_s"];
  }
  EXPECT_LT(ttft_s[static_cast<int>(PlanPolicy::kTetris)],
            ttft_s[static_cast<int>(PlanPolicy::kSingle)]);
  EXPECT_LE(ttft_s[static_cast<int>(PlanPolicy::kRolling)],
            ttft_s[static_cast<int>(PlanPolicy::kTetris)]);
  EXPECT_FALSE(ParsePlanPolicy("greedy").ok());
  EXPECT_TRUE(ParsePlanPolicy("rolling").ok());
}

std::string Why(std::string_view line) {
  return std::string(Lines().Answer(line).status().message());
}

TEST(Plan, BadInputIsRefusedWithTheFieldAndTheValue) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not valid JSON: column 1: "},
      {R"({"prompt_tokens": 5, "queue_s": [0)", "not valid JSON: column 35: "},
      {R"({"prompt_tokens": 5, "queue_s": [1e999]})", "not valid JSON: number overflow"},
      {"[1]", "[1]"},
      {R"({"queue_s": [0]})", "prompt_tokens is missing"},
      {R"({"prompt_tokens": 5})", "queue_s is missing"},
      {R"({"prompt_tokens": -5, "queue_s": [0]})", "prompt_tokens: -5"},
      {R"({"prompt_tokens": 0, "queue_s": [0]})", "prompt_tokens: 0"},
      {R"({"prompt_tokens": 2.5, "queue_s": [0]})", "prompt_tokens: 2.5"},
      {R"({"prompt_tokens": NaN, "queue_s": [0]})", "prompt_tokens: \"NaN\""},
      {R"({"prompt_tokens": 18446744073709551615, "queue_s": [0]})", "prompt_tokens: 1844"},
      {R"({"prompt_tokens": "5", "queue_s": [0]})", "prompt_tokens: \"5\""},
      {R"({"prompt_tokens": 5, "queue_s": [0, -1]})", "queue_s[1]: -1"},
      {R"({"prompt_tokens": 5, "queue_s": [0, NaN]})", "queue_s[1]: \"NaN\""},
      {R"({"prompt_tokens": 5, "queue_s": [-Infinity]})", "queue_s[0]: \"-Infinity\""},
      {R"({"prompt_tokens": 5, "queue_s": [null]})", "queue_s[0]: null"},
      {R"({"prompt_tokens": 5, "queue_s": []})", "queue_s: []"},
      {R"({"prompt_tokens": 5, "queue_s": 0})", "queue_s: 0"},
      {R"({"prompt_tokens": 5, "queue_s": [0], "Nan\"": 1})", "'Nan\"' is unknown"},
  };
  for (const auto& [line, expected] : cases) {
    EXPECT_NE(Why(line).find(expected), std::string::npos) << line << ": " << Why(line);
  }
}

// Runs the command on this input; returns exit code, standard output and standard error.
std::tuple<int, std::string, std::string> RunPlan(const std::string& input,
                                                  const std::string& format) {
  std::istringstream in(input);
  std::streambuf* const before = std::cin.rdbuf(in.rdbuf());
  PlanFlags flags;
  flags.profile = "llama3-8b-a100";
  flags.format = format;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = RunPlan(flags);
  std::cin.rdbuf(before);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(Plan, AWrongLineIsNamedByItsNumber) {
  const std::string right = R"({"prompt_tokens": 100, "queue_s": [0]})";
  const std::string input = right + "\n\n{\"prompt_tokens\": x\n" + right + "\n";
  const auto [code, out, error] = RunPlan(input, "text");
  EXPECT_EQ(code, 2);
  EXPECT_EQ(error.find("skeinctl plan: error: line 3: not valid JSON: column 19: "), 0u) << error;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
  const auto [json_code, json_out, json_error] = RunPlan(input, "json");
  EXPECT_EQ(json_code, 2);
  EXPECT_EQ(json_error, "");
  std::istringstream lines(json_out);
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  std::getline(lines, third);
  EXPECT_EQ(nlohmann::json::parse(second)["line"], 3);
  EXPECT_EQ(first, third);
}

TEST(Plan, AProfileWithoutASizeForTheClusterIsRefused) {
  const auto model = scheduler::LatencyModel::Make({{8, {0, 1, 0, 0}}});
  PlanLines lines(*model, 8, 0, PlanPolicy::kTetris);
  const auto answer = lines.Answer(R"({"prompt_tokens": 5, "queue_s": [0, 0]})");
  EXPECT_NE(answer.status().message().find("smallest SP size, 8"), absl::string_view::npos);
}

}  // namespace
}  // namespace skein::services
