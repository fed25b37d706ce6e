#include "services/openai/request.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

// Adds a model, if the body has none.
std::string WithModel(std::string_view body) {
  Json json = Json::parse(body);
  if (!json.contains("model")) json["model"] = "m";
  return json.dump();
}

CompletionRequest ParsedCompletion(std::string_view body) {
  CompletionRequest request;
  const MaybeError error = Parse(WithModel(body), ParseLimits{}, &request);
  EXPECT_FALSE(error.has_value()) << error->message;
  return request;
}

ChatRequest ParsedChat(std::string_view body) {
  ChatRequest request;
  const MaybeError error = Parse(WithModel(body), ParseLimits{}, &request);
  EXPECT_FALSE(error.has_value()) << error->message;
  return request;
}

// A long list would be copied into each of up to 128 choices' specs.
TEST(ParseTest, TokenListsAreBounded) {
  const auto parse = [](const std::string& member, size_t count, const auto& item) {
    std::string body = R"({"model":"m","prompt":"p",)" + member;
    for (size_t i = 0; i < count; ++i) body += (i > 0 ? "," : "") + item(i);
    body += member.back() == '[' ? "]}" : "}}";
    CompletionRequest request;
    return Parse(body, ParseLimits(), &request);
  };
  const auto id = [](size_t) { return std::string("7"); };
  EXPECT_FALSE(parse(R"("stop_token_ids":[)", 128, id));
  MaybeError error = parse(R"("stop_token_ids":[)", 129, id);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, "stop_token_ids");
  EXPECT_EQ(error->message, "Invalid 'stop_token_ids': it has 129 ids; at most 128 are allowed.");
  const auto bias = [](size_t i) { return "\"" + std::to_string(i) + "\":1"; };
  EXPECT_FALSE(parse(R"("logit_bias":{)", 1024, bias));
  error = parse(R"("logit_bias":{)", 1025, bias);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "logit_bias");
  EXPECT_EQ(error->message, "Invalid 'logit_bias': it has 1025 tokens; at most 1024 are allowed.");
}

TEST(CompletionRequestTest, Defaults) {
  const CompletionRequest request =
      ParsedCompletion(R"({"model":"m","prompt":"hi","new_field":{}})");
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "hi");
  EXPECT_FALSE(request.options.max_tokens.has_value());
  EXPECT_FALSE(request.options.temperature.has_value());
  EXPECT_EQ(request.options.n, 1);
  EXPECT_EQ(request.options.top_logprobs, -1);
  EXPECT_FALSE(request.options.stream);
  EXPECT_EQ(request.notes.unknown, 1);
  EXPECT_EQ(request.notes.warnings[0], "unknown parameter 'new_field'");
}

TEST(CompletionRequestTest, EveryFormOfPrompt) {
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(ParsedCompletion(R"({"prompt":["a","b"]})").prompts.size(), 2u);
  EXPECT_EQ(std::get<Tokens>(ParsedCompletion(R"({"prompt":[1,2,3.0]})").prompts[0]),
            (Tokens{1, 2, 3}));
  const auto two = ParsedCompletion(R"({"prompt":[[1,2],[3]]})").prompts;
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(std::get<Tokens>(two[1]), (Tokens{3}));
}

TEST(CompletionRequestTest, AllOptions) {
  const GenerationOptions o =
      ParsedCompletion(R"({"prompt":"p","max_tokens":0,"n":3,"best_of":3,"stream":true,
        "stream_options":{"include_usage":true,"continuous_usage_stats":true},"temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,
        "repetition_penalty":1.2,"presence_penalty":-2,"frequency_penalty":2,"seed":-5,
        "logit_bias":{"5":-100,"6":1.5},"logprobs":20,"stop":"\n","stop_token_ids":[7],
        "ignore_eos":true,"min_tokens":4,"skip_special_tokens":false,"suffix":null,
        "include_stop_str_in_output":true,"return_token_ids":true,"user":"u",
        "return_tokens_as_token_ids":true})")
          .options;
  EXPECT_EQ(o.max_tokens, 0);
  EXPECT_EQ(o.n, 3);
  EXPECT_TRUE(o.stream && o.include_usage && o.ignore_eos && o.include_stop_str_in_output);
  EXPECT_TRUE(o.return_token_ids && !o.skip_special_tokens);
  EXPECT_TRUE(o.continuous_usage && o.tokens_as_ids);
  EXPECT_EQ(o.best_of, 3);
  EXPECT_EQ(o.temperature, 0.0);
  EXPECT_EQ(o.top_k, 0);
  EXPECT_EQ(o.seed, -5);
  EXPECT_EQ(o.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.f}, {6, 1.5f}}));
  EXPECT_EQ(o.top_logprobs, 20);
  EXPECT_EQ(o.stop, std::vector<std::string>{"\n"});
  EXPECT_EQ(o.stop_token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(o.min_tokens, 4);
}

struct Refused {
  const char* fields;
  const char* param;
};

class RefusedCompletionTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedCompletionTest, NamesTheParameter) {
  const std::string fields = GetParam().fields;
  const char* model = fields.find("\"model\"") == std::string::npos ? "\"model\":\"m\"," : "";
  std::string body = "{" + (model + fields) + "}";
  if (fields.find("\"prompt\"") == std::string::npos) body.insert(1, "\"prompt\":\"p\",");
  CompletionRequest request;
  const MaybeError error = Parse(body, ParseLimits{}, &request);
  ASSERT_TRUE(error.has_value()) << body;
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, GetParam().param) << error->message;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedCompletionTest,
    ::testing::Values(
        Refused{R"("prompt":null)", "prompt"}, Refused{R"("prompt":[])", "prompt"},
        Refused{R"("prompt":5)", "prompt"}, Refused{R"("prompt":[1,"a"])", "prompt"},
        Refused{R"("prompt":["a",1])", "prompt"}, Refused{R"("prompt":[-1])", "prompt"},
        Refused{R"("prompt":[1.5])", "prompt"},
        Refused{R"("prompt":[[1],[99999999999]])", "prompt[1]"},
        Refused{R"("prompt":[[]])", "prompt"}, Refused{R"("prompt":{})", "prompt"},
        Refused{R"("temperature":-0.1)", "temperature"},
        Refused{R"("temperature":2.1)", "temperature"},
        Refused{R"("temperature":"1")", "temperature"}, Refused{R"("top_p":1.5)", "top_p"},
        Refused{R"("max_tokens":-1)", "max_tokens"}, Refused{R"("max_tokens":1.5)", "max_tokens"},
        Refused{R"("max_tokens":18446744073709551615)", "max_tokens"},
        Refused{R"("max_tokens":true)", "max_tokens"}, Refused{R"("n":0)", "n"},
        Refused{R"("n":1000000)", "n"}, Refused{R"("n":1e300)", "n"},
        Refused{R"("prompt":["a","b"],"n":100)", "n"}, Refused{R"("n":2,"best_of":1)", "best_of"},
        Refused{R"("stream":true,"best_of":2)", "best_of"},
        Refused{R"("prompt":["a","b"],"best_of":65)", "best_of"},
        Refused{R"("model":null)", "model"}, Refused{R"("suffix":"x")", "suffix"},
        Refused{R"("stream":1)", "stream"},
        Refused{R"("stream_options":{"include_usage":true})", "stream_options"},
        Refused{R"("stream":true,"stream_options":{"include_usage":1})",
                "stream_options.include_usage"},
        Refused{R"("stop":5)", "stop"}, Refused{R"("stop":[""])", "stop"},
        Refused{R"("stop":[1])", "stop"},
        Refused{R"("stop":["1","2","3","4","5","6","7","8","9","0","a","b","c","d","e","f","g"])",
                "stop"},
        Refused{R"("logprobs":21)", "logprobs"}, Refused{R"("logprobs":true)", "logprobs"},
        Refused{R"("logit_bias":{"x":1})", "logit_bias"},
        Refused{R"("logit_bias":{"1":101})", "logit_bias"},
        Refused{R"("logit_bias":[1])", "logit_bias"},
        Refused{R"("presence_penalty":3)", "presence_penalty"},
        Refused{R"("frequency_penalty":-3)", "frequency_penalty"}, Refused{R"("seed":1.5)", "seed"},
        Refused{R"("seed":"a")", "seed"}, Refused{R"("user":5)", "user"},
        Refused{R"("model":5)", "model"}, Refused{R"("stop_token_ids":[-1])", "stop_token_ids"},
        Refused{R"("min_p":2)", "min_p"},
        Refused{R"("repetition_penalty":0)", "repetition_penalty"},
        Refused{R"("top_k":-2)", "top_k"}, Refused{R"("echo":"yes")", "echo"},
        Refused{R"("guided_json":{"a":1})", "guided_json"}, Refused{R"("regex":"a*")", "regex"},
        Refused{R"("ebnf":"root ::= x")", "ebnf"},
        Refused{R"("max_new_tokens":5)", "max_new_tokens"},
        Refused{R"("response_format":{"type":"json_object"})", "response_format"}));

TEST(ChatRequestTest, MessagesAreNormalised) {
  const ChatRequest request = ParsedChat(R"({"model":"m","messages":[
    {"role":"developer","content":"d"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
      "function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
    {"role":"tool","content":"r","tool_call_id":"1"}],"tool_choice":"auto",
    "documents":[{"text":"d"}],
    "max_tokens":5,"max_completion_tokens":7,"logprobs":true,"top_logprobs":3,
    "chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low"})");
  const Json& messages = request.input.messages;
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "a\nb");
  EXPECT_EQ(messages[1]["name"], "n");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"].dump(), R"({"z":1,"a":2})");
  EXPECT_EQ(messages[2]["content"], "");
  EXPECT_EQ(request.input.template_kwargs.dump(),
            R"({"enable_thinking":false,"documents":[{"text":"d"}],"reasoning_effort":"low"})");
  EXPECT_EQ(request.options.max_tokens, 7);
  EXPECT_EQ(request.options.top_logprobs, 3);
  EXPECT_TRUE(request.input.add_generation_prompt);
  EXPECT_FALSE(request.input.add_special_tokens);
}

TEST(ChatRequestTest, WhatAsksForNothingIsAccepted) {
  const auto with = [](const std::string& members) {
    return ParsedChat(R"({"messages":[{"role":"user","content":"a"}],)" + members + "}");
  };
  // Hidden from the model, so that no tool call has to be parsed.
  with(R"("tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}])");
  with(R"("tools":[],"functions":[],"response_format":{"type":"text"},"modalities":["text"])");
  with(R"("length_penalty":1.0,"detokenize":true,"use_beam_search":false,"chat_template":null)");
  EXPECT_EQ(with(R"("top_logprobs":0)").options.top_logprobs, -1);
  EXPECT_EQ(with(R"("store":true,"metadata":{"a":"b"},"service_tier":"auto")").notes.unknown, 0);
}

class RefusedChatTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedChatTest, NamesTheParameter) {
  const std::string fields = GetParam().fields;
  const char* model = fields.find("\"model\"") == std::string::npos ? "\"model\":\"m\"," : "";
  std::string body = "{" + (model + fields) + "}";
  if (fields.find("\"messages\"") == std::string::npos) {
    body.insert(1, R"("messages":[{"role":"user","content":"a"}],)");
  }
  ChatRequest request;
  const MaybeError error = Parse(body, ParseLimits{}, &request);
  ASSERT_TRUE(error.has_value()) << body;
  EXPECT_EQ(error->param, GetParam().param) << error->message;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedChatTest,
    ::testing::Values(
        Refused{R"("messages":null)", "messages"}, Refused{R"("messages":[])", "messages"},
        Refused{R"("messages":{})", "messages"}, Refused{R"("messages":["hi"])", "messages[0]"},
        Refused{R"("messages":[{"content":"a"}])", "messages[0].role"},
        Refused{R"("messages":[{"role":"king","content":"a"}])", "messages[0].role"},
        Refused{R"("messages":[{"role":"user"}])", "messages[0].content"},
        Refused{R"("messages":[{"role":"user","content":5}])", "messages[0].content"},
        Refused{R"("messages":[{"role":"user","content":["a"]}])", "messages[0].content[0]"},
        Refused{R"("messages":[{"role":"user","content":[{"type":"text"}]}])",
                "messages[0].content[0].text"},
        Refused{R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}])",
                "messages[0].content[0].type"},
        Refused{
            R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])",
            "messages[0].tool_calls[0].function.arguments"},
        Refused{R"("tool_choice":"required")", "tool_choice"},
        Refused{R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
        Refused{R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools"},
        Refused{R"("tools":[{"type":"custom"}],"tool_choice":"none")", "tools[0]"},
        Refused{R"("tools":{"a":1})", "tools"},
        Refused{R"("functions":[{"name":"f"}])", "functions"},
        Refused{R"("top_logprobs":2)", "top_logprobs"},
        Refused{R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
        Refused{R"("logprobs":3)", "logprobs"}, Refused{R"("max_tokens":0)", "max_tokens"},
        Refused{R"("max_completion_tokens":-1)", "max_completion_tokens"},
        Refused{R"("response_format":{"type":"json_schema"})", "response_format"},
        Refused{R"("modalities":["audio"])", "modalities"},
        Refused{R"("audio":{"voice":"a"})", "audio"},
        Refused{R"("continue_final_message":true,"add_generation_prompt":true)",
                "continue_final_message"}));

TEST(TokenizeRequestTest, PromptAndMessages) {
  TokenizeRequest request;
  const ParseLimits limits;
  ASSERT_FALSE(Parse(R"({"prompt":"a","add_special_tokens":false})", limits, &request));
  EXPECT_EQ(std::get<std::string>(request.input), "a");
  EXPECT_FALSE(request.add_special_tokens);
  ASSERT_FALSE(Parse(R"({"messages":[{"role":"user","content":"a"}]})", limits, &request));
  EXPECT_EQ(std::get<ChatInput>(request.input).messages.size(), 1u);
  EXPECT_EQ(Parse("{}", limits, &request)->param, "prompt");
  EXPECT_EQ(Parse("[]", limits, &request)->code, "invalid_type");
  DetokenizeRequest tokens;
  ASSERT_FALSE(Parse(R"({"tokens":[1,2]})", limits, &tokens));
  EXPECT_EQ(tokens.tokens.size(), 2u);
  EXPECT_EQ(Parse(R"({"tokens":["a"]})", limits, &tokens)->param, "tokens");
  EXPECT_EQ(Parse(R"({})", limits, &tokens)->param, "tokens");
}

}  // namespace
}  // namespace skein::services::openai
