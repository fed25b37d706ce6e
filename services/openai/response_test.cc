#include "services/openai/response.h"

#include <gtest/gtest.h>

#include <limits>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

Head MakeHead(Kind kind) { return {kind, "id-1", 1700000000, "m", "fp", false}; }

Json FromEvent(const std::string& event) {
  EXPECT_EQ(event.substr(0, 6), "data: ");
  EXPECT_EQ(event.substr(event.size() - 2), "\n\n");
  return Json::parse(event.substr(6));
}

Choice WithLogprobs() {
  Choice choice;
  choice.text = "hé";
  choice.finish_reason = "length";
  choice.with_logprobs = true;
  choice.top_logprobs = 2;
  choice.logprobs.push_back(
      {"h", -0.5f, {{"h", -0.5f, 4}, {"\xC3", -1.5f, 5}, {"x", -2.f, 6}}, 0, 4});
  choice.logprobs.push_back(
      {"\xC3\xA9", -std::numeric_limits<float>::infinity(), {{"a", -0.25f, 7}}, 1, 8});
  return choice;
}

TEST(ResponseTest, WholeCompletion) {
  const Json json = Json::parse(WholeAnswer(MakeHead(Kind::kCompletion), {WithLogprobs()}, {3, 2}));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["usage"], Json::parse(R"({"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,
              "prompt_tokens_details":{"cached_tokens":0},
              "completion_tokens_details":{"reasoning_tokens":0}})"));
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "hé");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_EQ(choice["logprobs"], Json::parse(R"({"text_offset":[0,1],"token_logprobs":[-0.5,-9999],
    "tokens":["h","é"],"top_logprobs":[{"h":-0.5,"bytes:\\xc3":-1.5},{"a":-0.25,"é":-9999}]})"));
}

TEST(ResponseTest, WholeChat) {
  Choice choice = WithLogprobs();
  choice.finish_reason = "stop";
  choice.stop_reason = std::string("\n");
  const Json json = Json::parse(WholeAnswer(MakeHead(Kind::kChat), {choice}, {3, 2}));
  EXPECT_EQ(json["object"], "chat.completion");
  const Json& out = json["choices"][0];
  EXPECT_EQ(out["message"], Json::parse(R"({"role":"assistant","content":"hé","refusal":null})"));
  EXPECT_EQ(out["stop_reason"], "\n");
  EXPECT_TRUE(out["logprobs"]["refusal"].is_null());
  EXPECT_EQ(out["logprobs"]["content"][0], Json::parse(R"({"token":"h","logprob":-0.5,"bytes":[104],
    "top_logprobs":[{"token":"h","logprob":-0.5,"bytes":[104]},
                    {"token":"bytes:\\xc3","logprob":-1.5,"bytes":[195]}]})"));
}

TEST(ResponseTest, TokensAsTheirIds) {
  Choice choice = WithLogprobs();
  choice.tokens_as_ids = true;
  Json json = Json::parse(WholeAnswer(MakeHead(Kind::kCompletion), {choice}, {}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"], Json({"token_id:4", "token_id:8"}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["top_logprobs"][0].dump(),
            R"({"token_id:4":-0.5,"token_id:5":-1.5})");
  json = Json::parse(WholeAnswer(MakeHead(Kind::kChat), {choice}, {}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"][0]["token"], "token_id:4");
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1]["token"], "token_id:5");
}

TEST(ResponseTest, EventWithoutTokensHasNoLogprobs) {
  Choice choice;
  choice.with_logprobs = true;
  choice.finish_reason = "stop";
  for (const Kind kind : {Kind::kChat, Kind::kCompletion}) {
    const Json event = FromEvent(ChoiceEvent(MakeHead(kind), choice));
    EXPECT_TRUE(event["choices"][0]["logprobs"].is_null());
    const Json whole = Json::parse(WholeAnswer(MakeHead(kind), {choice}, {}));
    EXPECT_TRUE(whole["choices"][0]["logprobs"].is_object());
  }
}

TEST(ResponseTest, MetricsInMilliseconds) {
  const Head head = MakeHead(Kind::kChat);
  const Metrics metrics = {1500, 500, 20'000, 3000, 30'000, 8000, 40'000, 5};
  const Json whole = Json::parse(WholeAnswer(head, {}, {}, &metrics));
  EXPECT_EQ(whole["metrics"].dump(),
            R"({"time_to_first_token_ms":30.0,"queue_time_ms":1.5,"plan_time_ms":0.5,)"
            R"("prefill_time_ms":20.0,"handoff_time_ms":3.0,"generation_time_ms":8.0,)"
            R"("mean_itl_ms":2.0,"total_time_ms":40.0})");
  EXPECT_EQ(FromEvent(UsageEvent(head, {}, &metrics))["metrics"], whole["metrics"]);
  EXPECT_EQ(FromEvent(ChoiceEvent(head, {}, nullptr, &metrics))["metrics"], whole["metrics"]);
  const Metrics no_token;
  const Json none = Json::parse(WholeAnswer(head, {}, {}, &no_token))["metrics"];
  EXPECT_TRUE(none["time_to_first_token_ms"].is_null() && none["mean_itl_ms"].is_null());
  EXPECT_FALSE(Json::parse(WholeAnswer(head, {}, {})).contains("metrics"));
}

TEST(ResponseTest, StreamEvents) {
  Head head = MakeHead(Kind::kChat);
  Json json = FromEvent(RoleEvent(head, 1));
  EXPECT_EQ(json["object"], "chat.completion.chunk");
  EXPECT_EQ(
      json["choices"][0].dump(),
      R"({"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})");
  EXPECT_FALSE(json.contains("usage"));
  head.include_usage = true;
  Choice choice;
  choice.text = "x";
  json = FromEvent(ChoiceEvent(head, choice));
  EXPECT_EQ(json["choices"][0]["delta"].dump(), R"({"content":"x"})");
  ASSERT_TRUE(json.contains("usage"));
  EXPECT_TRUE(json["usage"].is_null());
  const Usage so_far = {1, 1};
  EXPECT_EQ(FromEvent(ChoiceEvent(head, choice, &so_far))["usage"]["total_tokens"], 2);
  EXPECT_EQ(FromEvent(RoleEvent(head, 0, &so_far))["usage"]["total_tokens"], 2);
  choice.text.clear();
  choice.finish_reason = "stop";
  choice.stop_reason = 2;
  json = FromEvent(ChoiceEvent(head, choice));
  EXPECT_EQ(json["choices"][0]["delta"].dump(), "{}");
  EXPECT_EQ(json["choices"][0]["stop_reason"], 2);
  json = FromEvent(UsageEvent(head, {1, 2}));
  EXPECT_TRUE(json["choices"].empty());
  EXPECT_EQ(json["usage"]["total_tokens"], 3);
  json = FromEvent(ErrorEvent({500, "boom", "", "internal"}));
  EXPECT_EQ(json["error"]["message"], "boom");
}

// Clients disagree on how to read a JSON object with duplicate keys.
TEST(ResponseTest, ATokenAmongTheMostLikelyIsListedOnce) {
  Choice choice;
  choice.with_logprobs = true;
  choice.top_logprobs = 1;
  choice.logprobs.push_back({"h", -0.5f, {{"h", -0.5f}}, 0});
  const std::string json = WholeAnswer(MakeHead(Kind::kCompletion), {choice}, {});
  EXPECT_NE(json.find(R"("top_logprobs":[{"h":-0.5}])"), std::string::npos) << json;
}

TEST(ResponseTest, LogprobsAreWithinWhatClientsKnow) {
  Choice choice;
  choice.with_logprobs = true;
  choice.logprobs.push_back({"a", 1e-7f, {}, 0});  // rounding
  choice.logprobs.push_back({"b", -20'000.f, {}, 1});
  const Json json = Json::parse(WholeAnswer(MakeHead(Kind::kCompletion), {choice}, {}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["token_logprobs"], Json({0.0, -9999.0}));
}

TEST(ResponseTest, TokenIds) {
  const std::vector<int32_t> prompt = {1, 9};
  Choice choice;
  choice.with_token_ids = true;
  choice.token_ids = {4, 5};
  choice.prompt_token_ids = &prompt;
  Json json = Json::parse(WholeAnswer(MakeHead(Kind::kCompletion), {choice}, {}));
  EXPECT_EQ(json["choices"][0]["token_ids"], Json({4, 5}));
  EXPECT_EQ(json["choices"][0]["prompt_token_ids"], Json({1, 9}));
  json = Json::parse(WholeAnswer(MakeHead(Kind::kChat), {choice}, {}));
  EXPECT_EQ(json["prompt_token_ids"], Json({1, 9}));
}

TEST(ResponseTest, ModelsAndTokenize) {
  const Json list = Json::parse(ModelListBody({{"a", 5, 512}, {"b", 5, 512}}));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][1]["id"], "b");
  EXPECT_EQ(list["data"][0]["owned_by"], "skein");
  EXPECT_EQ(TokenizeBody({1, 2}, 512, nullptr),
            R"({"count":2,"max_model_len":512,"tokens":[1,2],"token_strs":null})");
  EXPECT_EQ(DetokenizeBody("a\"b"), R"({"prompt":"a\"b"})");
}

}  // namespace
}  // namespace skein::services::openai
