// What clients are answered: text, shapes, stop strings, choices. Logprobs and echo:
// logprobs_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "services/base/file.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

Script StopsWith(std::string text, int32_t stop_token) {
  Script script = Says(std::move(text));
  script.reason = v1::FINISH_REASON_STOP;
  script.stop_token = stop_token;
  return script;
}

TEST_F(RouterTest, CompletionIsAnsweredWhole) {
  StartRouter([](const v1::RequestSpec&) { return Says("wörld"); });
  const Json json =
      Ask("/v1/completions", {{"model", "m"}, {"prompt", "héllo"}, {"max_tokens", 6}});
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["id"].get<std::string>().substr(0, 5), "cmpl-");
  EXPECT_EQ(json["choices"][0]["text"], "wörld");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(json["usage"].dump(), R"({"prompt_tokens":6,"completion_tokens":6,"total_tokens":12,)"
                                  R"("prompt_tokens_details":{"cached_tokens":0},)"
                                  R"("completion_tokens_details":{"reasoning_tokens":0}})");
  const v1::RequestSpec spec = cluster_->specs().at(0);
  EXPECT_EQ(PromptOf(spec), BytesOf("héllo"));
  EXPECT_EQ(spec.max_tokens(), 6u);
  EXPECT_EQ(SamplingOf(spec).temperature(), 1.0f);
  EXPECT_EQ(spec.stop_token_ids(0), kEos);
}

TEST_F(RouterTest, EventsNeverHoldHalfACharacter) {
  StartRouter([](const v1::RequestSpec&) { return StopsWith("a€b", kEos); });
  const auto events =
      Stream("/v1/completions",
             {{"model", "m"}, {"prompt", "p"}, {"stream_options", {{"include_usage", true}}}});
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["choices"][0]["text"], "a");
  EXPECT_EQ(events[1]["choices"][0]["text"], "€");
  EXPECT_EQ(events[2]["choices"][0]["text"], "b");
  EXPECT_TRUE(events[2]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events[3]["choices"][0]["stop_reason"].is_null());
  EXPECT_TRUE(events[3]["usage"].is_null());
  EXPECT_EQ(events[4]["usage"]["completion_tokens"], 6);
}

TEST_F(RouterTest, ChatRendersTheTemplate) {
  StartRouter([](const v1::RequestSpec&) { return StopsWith("hi", kEos); });
  const Json body = {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "hey"}}}}};
  const Json json = Ask("/v1/chat/completions", body);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  const v1::RequestSpec spec = cluster_->specs().at(0);
  EXPECT_EQ(PromptOf(spec), BytesOf("[user]hey[assistant]"));
  EXPECT_EQ(spec.max_tokens(), 180u);  // what the context of 200 leaves
  const auto events = Stream("/v1/chat/completions", body);
  EXPECT_EQ(events[0]["choices"][0]["delta"].dump(), R"({"role":"assistant","content":""})");
  EXPECT_EQ(events[1]["choices"][0]["delta"].dump(), R"({"content":"h"})");
  EXPECT_EQ(events.back()["choices"][0]["delta"].dump(), "{}");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
}

TEST_F(RouterTest, FinalMessageIsContinued) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  Ask("/v1/chat/completions",
      {{"model", "m"},
       {"continue_final_message", true},
       {"messages",
        {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "so "}}}}});
  const v1::RequestSpec spec = cluster_->specs().at(0);
  EXPECT_EQ(PromptOf(spec), BytesOf("[user]q[assistant]so"));
}

// The template drops a part of the last message, so that it is found nowhere, and almost found at
// each of 2 million places: comparing at each of them would take longer than the client waits.
TEST_F(RouterTest, ARewrittenFinalMessageIsRefusedSoon) {
  model_ = MakeByteModel("m", max_positions_);
  model_->chat_template =
      engine::ChatTemplate::Parse(
          "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}")
          .value();
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  constexpr size_t kLong = 1 << 20;
  const http::Response response =
      Post("/v1/chat/completions",
           {{"model", "m"},
            {"continue_final_message", true},
            {"messages",
             {{{"role", "user"}, {"content", std::string(2 * kLong, 'a')}},
              {{"role", "assistant"}, {"content", std::string(kLong, 'a') + "</think>x"}}}}});
  ASSERT_EQ(response.status, 400) << response.body;
  const Json error = Json::parse(response.body)["error"];
  EXPECT_EQ(error["param"], "continue_final_message") << error["message"];
}

class StopStringTest : public RouterTest, public ::testing::WithParamInterface<bool> {};

TEST_P(StopStringTest, EndsTheTextAndTheRequest) {
  const bool one_message = GetParam();
  StartRouter([one_message](const v1::RequestSpec&) {
    Script script = Says("one. two# three");
    script.one_message = one_message;
    script.hold = true;
    return script;
  });
  const Json body = {
      {"model", "m"}, {"prompt", "p"}, {"stop", {"two#", "zzz"}}, {"max_tokens", 50}};
  const Json json = Ask("/v1/completions", body);
  EXPECT_EQ(json["choices"][0]["text"], "one. ");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["stop_reason"], "two#");
  EXPECT_EQ(json["usage"]["completion_tokens"], 9);  // those sampled until the match
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
  Json with = body;
  with["include_stop_str_in_output"] = true;
  std::string text;
  for (const Json& event : Stream("/v1/completions", with)) {
    text += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "one. two#");
}

INSTANTIATE_TEST_SUITE_P(OneMessageOrMany, StopStringTest, ::testing::Bool());

TEST_F(RouterTest, TheLastOfEqualMessagesIsContinued) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  Ask("/v1/chat/completions",
      {{"model", "m"},
       {"continue_final_message", true},
       {"messages",
        {{{"role", "user"}, {"content", "so"}}, {{"role", "assistant"}, {"content", "so"}}}}});
  const v1::RequestSpec spec = cluster_->specs().at(0);
  EXPECT_EQ(PromptOf(spec), BytesOf("[user]so[assistant]so"));
}

TEST_F(RouterTest, StopStringsAreLookedForAfterMinTokens) {
  StartRouter([](const v1::RequestSpec&) { return Says("ababab"); });
  const Json json =
      Ask("/v1/completions", {{"model", "m"}, {"prompt", "p"}, {"stop", "ab"}, {"min_tokens", 2}});
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["stop_reason"], "ab");
}

// Half a character at the end becomes U+FFFD; that may be a stop string.
TEST_F(RouterTest, AStopStringThatTheLastBytesCompleteIsAStop) {
  StartRouter([](const v1::RequestSpec&) { return Says("one\xE2"); });
  const Json json =
      Ask("/v1/completions", {{"model", "m"}, {"prompt", "p"}, {"stop", "\xEF\xBF\xBD"}});
  EXPECT_EQ(json["choices"][0]["text"], "one");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["stop_reason"], "\xEF\xBF\xBD");
}

TEST_F(RouterTest, TokenZeroIsAStopTokenLikeAnyOther) {
  StartRouter([](const v1::RequestSpec&) { return StopsWith("ab", 0); });
  const Json body = {
      {"model", "m"}, {"prompt", "p"}, {"stop_token_ids", {0}}, {"return_token_ids", true}};
  const Json choice = Ask("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["stop_reason"], 0);
  EXPECT_EQ(choice["token_ids"], Json({97, 98, 0}));
  // A stream tells the prompt's ids once.
  int told = 0;
  for (const Json& event : Stream("/v1/completions", body)) {
    told += event["choices"][0].contains("prompt_token_ids") ? 1 : 0;
  }
  EXPECT_EQ(told, 1);
}

// What might have become a stop string is text when the answer ends there.
TEST_F(RouterTest, TheBeginningOfAStopStringAtTheEndIsText) {
  const std::pair<std::string, std::string> cases[] = {
      {"one tw", "one tw"},                  // of "two"
      {"one\xE2", "one\xEF\xBF\xBD"},        // half a character becomes U+FFFD: of the second one
      {"one tw\xE2", "one tw\xEF\xBF\xBD"},  // and ends what might have become the first
  };
  std::string says;
  StartRouter([&says](const v1::RequestSpec&) { return Says(says); });
  const Json body = {{"model", "m"}, {"prompt", "p"}, {"stop", {"two", "\xEF\xBF\xBDz"}}};
  for (const auto& [bytes, text] : cases) {
    says = bytes;
    const Json choice = Ask("/v1/completions", body)["choices"][0];
    EXPECT_EQ(choice["text"], text);
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_TRUE(choice["stop_reason"].is_null());
    std::string streamed;
    for (const Json& event : Stream("/v1/completions", body)) {
      streamed += event["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(streamed, text);
  }
}

TEST_F(RouterTest, StopTokenIsReportedAndNotShown) {
  StartRouter([](const v1::RequestSpec&) { return StopsWith("ab", 'c'); });
  const Json json = Ask("/v1/completions", {{"model", "m"},
                                            {"prompt", "p"},
                                            {"stop_token_ids", {99}},
                                            {"ignore_eos", true},
                                            {"return_token_ids", true}});
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["stop_reason"], 99);
  EXPECT_EQ(json["choices"][0]["token_ids"], Json({97, 98, 99}));
  EXPECT_EQ(json["choices"][0]["prompt_token_ids"], Json::array({112}));
  EXPECT_EQ(cluster_->specs()[0].stop_token_ids_size(), 1);
}

TEST_F(RouterTest, ChoicesOfAllPromptsAreInOrder) {
  StartRouter([](const v1::RequestSpec& spec) {
    return Says(std::string(1, static_cast<char>(PromptOf(spec)[0])) + "!");
  });
  const Json json =
      Ask("/v1/completions", {{"model", "m"}, {"prompt", {"x", "y"}}, {"n", 2}, {"seed", 5}});
  ASSERT_EQ(json["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], i < 2 ? "x!" : "y!");
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(json["usage"]["completion_tokens"], 8);
  const auto specs = cluster_->specs();
  std::set<uint64_t> seeds;
  for (const auto& spec : specs) seeds.insert(SamplingOf(spec).seed());
  EXPECT_EQ(seeds.size(), 2u);  // the same two for each prompt
  EXPECT_EQ(seeds.count(5), 1u);
}

TEST_F(RouterTest, APrioritysLowerValueIsMoreUrgent) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const Json ask = {{"model", "m"}, {"prompt", "p"}};
  for (const int64_t priority : {int64_t{-3}, int64_t{7}, int64_t{-2147483647}}) {
    Json body = ask;
    body["priority"] = priority;
    Ask("/v1/completions", body);
    EXPECT_EQ(cluster_->specs().back().priority(), -priority);
  }
  Ask("/v1/chat/completions",
      {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}, {"priority", -4}});
  EXPECT_EQ(cluster_->specs().back().priority(), 4);
  Ask("/v1/completions", ask);
  EXPECT_EQ(cluster_->specs().back().priority(), 0);
  Json body = ask;
  body["priority"] = int64_t{-2147483648};
  const http::Response refused = Post("/v1/completions", body);
  EXPECT_EQ(refused.status, 400);
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["param"], "priority");
  EXPECT_NE(error["message"].get<std::string>().find("-2147483648"), std::string::npos) << error;
}

TEST_F(RouterTest, AKeysPriorityIsItsDefaultAndItsLimit) {
  edge_options_.api_key_file = std::string(std::getenv("TEST_TMPDIR")) + "/keys_with_priorities";
  ASSERT_TRUE(
      WriteFile(edge_options_.api_key_file, "gold priority=-5\nplain\nbulk priority=9\n").ok());
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const auto ask = [&](const std::string& key, std::optional<int> priority) {
    Json body = {{"model", "m"}, {"prompt", "p"}};
    if (priority.has_value()) body["priority"] = *priority;
    return Post("/v1/completions", body, {{"Authorization", "Bearer " + key}});
  };
  struct Case {
    const char* key;
    std::optional<int> named;
    int got;
  };
  for (const Case& c : {Case{"gold", {}, 5}, Case{"gold", -5, 5}, Case{"gold", 2, -2},
                        Case{"plain", {}, 0}, Case{"plain", -99, 99}, Case{"bulk", {}, -9}}) {
    EXPECT_EQ(ask(c.key, c.named).status, 200);
    EXPECT_EQ(cluster_->specs().back().priority(), c.got) << c.key;
  }
  const http::Response refused = ask("gold", -6);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(Json::parse(refused.body)["error"]["message"],
            "Invalid value for 'priority': expected at least -5 with this API key, got -6.");
}

std::set<uint64_t> SeedsOf(const std::vector<v1::RequestSpec>& specs) {
  std::set<uint64_t> seeds;
  for (const auto& spec : specs) seeds.insert(SamplingOf(spec).seed());
  return seeds;
}

TEST_F(RouterTest, EachPromptHasASeedOfItsOwn) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  Ask("/v1/completions", {{"model", "m"}, {"prompt", {"p", "p", "p", "p"}}, {"n", 2}});
  EXPECT_EQ(SeedsOf(cluster_->specs()).size(), 8u);
}

TEST_F(RouterTest, FirstOfSeveralChoicesHasTheSeedOfTheOnlyOne) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  for (const int n : {1, 3}) {
    Ask("/v1/completions", {{"model", "m"}, {"prompt", "p"}, {"n", n}, {"seed", 9}});
  }
  auto specs = cluster_->specs();  // as they arrived; their serial numbers are as they were asked
  std::sort(specs.begin(), specs.end(),
            [](const auto& a, const auto& b) { return a.id().serial() < b.id().serial(); });
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(SamplingOf(specs[0]).seed(), 9u);
  EXPECT_EQ(SamplingOf(specs[1]).seed(), 9u);
  EXPECT_EQ(SeedsOf(specs).size(), 3u);
}

// The choices of prompt "x" say one letter each; the later, the likelier.
Script Likelier(const v1::RequestSpec& spec) {
  Script script;
  const int serial = static_cast<int>(spec.id().serial());
  const float logprob =
      SamplingOf(spec).top_logprobs() >= 0 ? -8.f + static_cast<float>(serial) : 0;
  script.tokens = {Sampled('a' + serial, logprob), Sampled('!', logprob)};
  return script;
}

TEST_F(RouterTest, BestOfReturnsTheLikeliest) {
  StartRouter(Likelier);
  const Json json =
      Ask("/v1/completions", {{"model", "m"}, {"prompt", {"x", "y"}}, {"n", 2}, {"best_of", 3}});
  ASSERT_EQ(json["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(json["choices"][i]["index"], i);
  EXPECT_EQ(json["choices"][0]["text"], "d!");
  EXPECT_EQ(json["choices"][1]["text"], "c!");
  EXPECT_EQ(json["choices"][2]["text"], "g!");
  EXPECT_EQ(json["choices"][3]["text"], "f!");
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);  // of all six
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2);
}

TEST_F(RouterTest, UsageGrowsWithTheStream) {
  StartRouter([](const v1::RequestSpec&) { return Says("abc"); });
  const auto events =
      Stream("/v1/completions",
             {{"model", "m"},
              {"prompt", "pq"},
              {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  ASSERT_EQ(events.size(), 5u);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["usage"]["prompt_tokens"], 2);
    EXPECT_EQ(events[i]["usage"]["completion_tokens"], std::min<size_t>(i + 1, 3));
  }
}

TEST_F(RouterTest, MetricsOnDemandStandAtTheEnd) {
  StartRouter([](const v1::RequestSpec&) { return Says("abc"); });
  Json body = {{"model", "m"}, {"prompt", "p"}, {"return_metrics", true}};
  EXPECT_GT(Ask("/v1/completions", body)["metrics"]["total_time_ms"], 0);
  auto events = Stream("/v1/completions", body);
  EXPECT_GT(events.back()["metrics"]["time_to_first_token_ms"], 0);
  events.pop_back();
  for (const Json& event : events) EXPECT_FALSE(event.contains("metrics"));
  body["stream_options"] = {{"include_usage", true}};
  events = Stream("/v1/completions", body);
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_TRUE(events.back().contains("metrics"));
  EXPECT_FALSE(events[events.size() - 2].contains("metrics"));
  body["return_metrics"] = false;
  body.erase("stream_options");
  EXPECT_FALSE(Ask("/v1/completions", body).contains("metrics"));
}

TEST_F(RouterTest, ModelsLengthWinsOverTheRouters) {
  api_options_.default_max_tokens = 50;
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  auto suggesting = MakeByteModel("s", max_positions_);
  suggesting->max_new_tokens = 70;
  models_.Add(std::move(suggesting));
  Json body = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  const auto max_tokens = [&](const char* model, int asked) {
    body["model"] = model;
    if (asked > 0) body["max_tokens"] = asked;
    Ask("/v1/chat/completions", body);
    body.erase("max_tokens");
    return cluster_->specs().back().max_tokens();
  };
  EXPECT_EQ(max_tokens("m", 0), 50u);
  EXPECT_EQ(max_tokens("s", 0), 70u);
  EXPECT_EQ(max_tokens("m", 60), 60u);
  EXPECT_EQ(max_tokens("s", 80), 80u);
}

TEST_F(RouterTest, MessagesOfToolsReachTheTemplate) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const Json call = {
      {"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  Ask("/v1/chat/completions",
      {{"model", "m"},
       {"messages",
        {{{"role", "user"}, {"content", "q"}},
         {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}},
         {{"role", "tool"}, {"content", "r"}, {"tool_call_id", "1"}}}}});
  const v1::RequestSpec spec = cluster_->specs().at(0);
  EXPECT_EQ(PromptOf(spec), BytesOf("[user]q[assistant][tool]r[assistant]"));
}

// A tokenizer may have more tokens than the model can compute.
TEST_F(RouterTest, TokensBeyondTheEmbeddingAreRefusedByTheirParameter) {
  model_ = MakeByteModel("m", max_positions_);
  model_->vocab_size = 200;
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const auto refused = [this](const char* path, const Json& body, const char* param) {
    const http::Response response = Post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["param"], param);
    EXPECT_EQ(error["message"], std::string("Invalid '") + param +
                                    "': token id 226 is out of range (vocabulary size 200).");
  };
  refused("/v1/completions", {{"model", "m"}, {"prompt", "€"}}, "prompt");
  refused("/v1/completions", {{"model", "m"}, {"prompt", {65, 226}}}, "prompt");
  refused("/v1/completions", {{"model", "m"}, {"prompt", "a"}, {"logit_bias", {{"226", 1}}}},
          "logit_bias");
  refused("/v1/completions", {{"model", "m"}, {"prompt", "a"}, {"stop_token_ids", {65, 226}}},
          "stop_token_ids");
  refused("/v1/chat/completions",
          {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "€"}}}}}, "messages");
  EXPECT_TRUE(cluster_->specs().empty());
  EXPECT_EQ(Ask("/tokenize", {{"prompt", "€"}})["tokens"], Json({226, 130, 172}));
  EXPECT_EQ(Ask("/detokenize", {{"tokens", {226, 130, 172}}})["prompt"], "€");
}

// No token of the byte model is longer than 4 bytes.
TEST_F(RouterTest, APromptThatCannotFitIsRefusedBeforeItIsTokenized) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const auto message = [this](const char* path, const Json& body) {
    const http::Response response = Post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    return error["message"].get<std::string>();
  };
  const std::string longest(800, 'x');
  EXPECT_NE(
      message("/v1/completions", {{"model", "m"}, {"prompt", longest}}).find("801 tokens (800 in"),
      std::string::npos);
  const std::string refused =
      "This server takes at most 200 tokens of this model. However, you "
      "requested at least 201 (801 bytes of prompt). Please reduce the "
      "length of the prompt.";
  EXPECT_EQ(message("/v1/completions", {{"model", "m"}, {"prompt", longest + "x"}}), refused);
  EXPECT_EQ(message("/tokenize", {{"prompt", longest + "x"}}), refused);
  EXPECT_EQ(Ask("/tokenize", {{"prompt", longest}})["count"], 800);
  EXPECT_NE(message("/v1/chat/completions",
                    {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", longest}}}}})
                .find("bytes of messages"),
            std::string::npos);
}

// Before anything is made of them: one id may stand for many bytes.
TEST_F(RouterTest, MoreTokenIdsThanThereMayBeAreRefusedUnread) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const std::vector<int32_t> most(200, 'x');
  std::vector<int32_t> more = most;
  more.push_back(9999);  // never looked at
  const auto refused = [this](const char* path, const Json& body, const char* param) {
    const http::Response response = Post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], param);
    EXPECT_EQ(error["message"],
              std::string("This server takes at most 200 tokens of this model. However, you sent "
                          "201 in ") +
                  param + ". Please reduce the length of the " + param + ".");
  };
  refused("/v1/completions", {{"model", "m"}, {"prompt", more}, {"echo", true}}, "prompt");
  refused("/detokenize", {{"tokens", more}}, "tokens");
  EXPECT_TRUE(cluster_->specs().empty());
  EXPECT_EQ(Ask("/detokenize", {{"tokens", most}})["prompt"], std::string(200, 'x'));
}

// A request holds its share until its answer has ended, not only while its body is read.
TEST_F(RouterTest, PromptsUnderWayAreBoundedTogether) {
  http::ServerOptions http_options;
  http_options.bodies = std::make_shared<http::ByteBudget>(256 << 10);
  StartRouter(
      [](const v1::RequestSpec& spec) {
        Script script = Says("a");
        script.hold = PromptOf(spec).size() == 100;
        return script;
      },
      {}, http_options);
  // 100 tokens of 4 bytes: once as the prompt and twice for each choice.
  const Json large = {{"model", "m"},
                      {"prompt", std::string(100, 'p')},
                      {"n", 100},
                      {"max_tokens", 9},
                      {"stream", true}};
  const Json small = {{"model", "m"}, {"prompt", "p"}};
  {
    RawClient first(server_->port()), second(server_->port());
    for (RawClient* client : {&first, &second}) {
      client->Send(MakeRequest("POST", "/v1/completions", large.dump()));
      EXPECT_EQ(client->ReadHead().status, 200);
    }
    EXPECT_EQ(http_options.bodies->held_bytes(), 2u * 400 * 201);
    const http::Response refused = Post("/v1/completions", large);
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_EQ(http::FindHeader(refused.headers, "Retry-After"), "1");
    EXPECT_EQ(Post("/v1/completions", small).status, 200);
  }
  EXPECT_TRUE(cluster_->AwaitEnded(200, 200));
  shell_->loop().RunAndWait([] {});  // it is through with what cancelled them
  EXPECT_EQ(http_options.bodies->held_bytes(), 0u);
}

// Waiting, as a 429 tells to, would not help it.
TEST_F(RouterTest, ARequestThatNeverFitsTheBoundIsTheClientsFault) {
  http::ServerOptions http_options;
  http_options.bodies = std::make_shared<http::ByteBudget>(256 << 10);
  StartRouter([](const v1::RequestSpec&) { return Says("a"); }, {}, http_options);
  Json body = {{"model", "m"}, {"prompt", std::string(193, 'p')}, {"n", 128}, {"max_tokens", 5}};
  const http::Response refused = Post("/v1/completions", body);
  EXPECT_EQ(refused.status, 400) << refused.body;
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["message"],
            "This request needs 198404 bytes (prompt tokens times choices); this router allows "
            "196608 for one request. Send fewer choices or a shorter prompt.");
  body["max_tokens"] = 9;  // longer than the context, whatever it holds
  const http::Response too_long = Post("/v1/completions", body);
  EXPECT_EQ(too_long.status, 400) << too_long.body;
  EXPECT_EQ(Json::parse(too_long.body)["error"]["code"], "context_length_exceeded");
}

TEST_F(RouterTest, TokenizeAndDetokenize) {
  StartRouter([](const v1::RequestSpec&) { return Script(); });
  EXPECT_EQ(Ask("/tokenize", {{"prompt", "ab"}})["tokens"], Json({97, 98}));
  EXPECT_EQ(Ask("/tokenize",
                {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}})["count"],
            18);
  EXPECT_EQ(Ask("/detokenize", {{"tokens", {97, 98}}})["prompt"], "ab");
  const http::Response refused = Post("/detokenize", {{"tokens", {97, 258}}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(Json::parse(refused.body)["error"]["message"],
            "Invalid 'tokens': token id 258 is out of range (vocabulary size 258).");
}

TEST_F(RouterTest, UnknownParametersAreNamedAndCounted) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const Json body = {{"model", "m"}, {"prompt", "p"}, {"max_token", 3}};
  Json streamed = body;
  streamed["stream"] = true;
  Json wrong = body;
  wrong["temperature"] = 9;
  for (const Json& sent : {body, streamed, wrong}) {
    const http::Response answer = Post("/v1/completions", sent);
    EXPECT_EQ(http::FindHeader(answer.headers, "X-Skein-Warning"),
              "unknown parameter 'max_token' (did you mean 'max_tokens'?)");
  }
  const http::Response tokens = Post("/tokenize", {{"prompt", "a"}, {"zzz", 1}});
  EXPECT_EQ(tokens.status, 200);
  EXPECT_EQ(http::FindHeader(tokens.headers, "X-Skein-Warning"), "unknown parameter 'zzz'");
  const std::string text = metrics_.Render();
  EXPECT_NE(text.find("skein_router_unknown_parameters_total{path=\"/v1/completions\"} 3"),
            std::string::npos)
      << text;
}

TEST_F(RouterTest, StrictApiRefusesUnknownParameters) {
  api_options_.strict = true;
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const http::Response refused = Post(
      "/v1/completions", {{"model", "m"}, {"prompt", "p"}, {"stream", true}, {"max_token", 3}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(http::FindHeader(refused.headers, "X-Skein-Warning"), "");
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["param"], "max_token");
  EXPECT_EQ(error["code"], "unknown_parameter");
  EXPECT_TRUE(cluster_->specs().empty());
}

}  // namespace
}  // namespace skein::services::testing
