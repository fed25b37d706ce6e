// What clients are answered: logprobs, their offsets, and echoed prompts.
#include <gtest/gtest.h>

#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

Script WithLogprobs(const v1::RequestSpec& spec) {
  Script script;
  if (spec.want_prompt_logprobs()) {
    const std::vector<int32_t> prompt = PromptOf(spec);
    for (size_t i = 1; i < prompt.size(); ++i) {
      script.prompt_logprobs.push_back(Sampled(prompt[i], -static_cast<float>(i)));
    }
  }
  for (uint32_t i = 0; i < spec.max_tokens(); ++i) {
    script.tokens.push_back(Sampled('A' + static_cast<int>(i), -0.25f));
    auto* top = script.tokens.back().add_top();
    top->set_token('z');
    top->set_logprob(-0.125f);
  }
  return script;
}

TEST_F(RouterTest, LogprobsOfChat) {
  StartRouter(WithLogprobs);
  const Json json =
      Ask("/v1/chat/completions", {{"model", "m"},
                                   {"messages", {{{"role", "user"}, {"content", "hey"}}}},
                                   {"max_tokens", 2},
                                   {"logprobs", true},
                                   {"top_logprobs", 1}});
  const Json& content = json["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[1].dump(), R"({"token":"B","logprob":-0.25,"bytes":[66],)"
                               R"("top_logprobs":[{"token":"z","logprob":-0.125,"bytes":[122]}]})");
  EXPECT_EQ(SamplingOf(cluster_->specs()[0]).top_logprobs(), 1);
}

// Offsets are of the text that is there: a special token that is left out of it takes no place.
TEST_F(RouterTest, OffsetsCountTheTextThatIsShown) {
  StartRouter([](const v1::RequestSpec&) {
    Script script;
    for (const int32_t token : {int32_t{'a'}, kBos, int32_t{'b'}}) {
      script.tokens.push_back(Sampled(token));
    }
    return script;
  });
  Json body = {{"model", "m"}, {"prompt", "p"}, {"logprobs", 0}};
  Json choice = Ask("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 1, 1}));
  body["skip_special_tokens"] = false;
  choice = Ask("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], "a<s>b");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 1, 4}));
}

// A cluster may score the first token too, or leave it out: each score stays with its token.
TEST_F(RouterTest, EchoTakesTheScoresOfAllTokensToo) {
  StartRouter([](const v1::RequestSpec& spec) {
    Script script;
    const std::vector<int32_t> prompt = PromptOf(spec);
    for (size_t i = 0; i < prompt.size(); ++i) {
      script.prompt_logprobs.push_back(Sampled(prompt[i], -static_cast<float>(i)));
    }
    return script;
  });
  const Json json =
      Ask("/v1/completions",
          {{"model", "m"}, {"prompt", "abc"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}});
  const Json& logprobs = json["choices"][0]["logprobs"];
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -1);
  EXPECT_EQ(logprobs["token_logprobs"][2], -2);
}

TEST_F(RouterTest, EchoScoresThePrompt) {
  StartRouter(WithLogprobs);
  for (const int max_tokens : {0, 1}) {
    const Json json = Ask("/v1/completions", {{"model", "m"},
                                              {"prompt", "abc"},
                                              {"echo", true},
                                              {"logprobs", 1},
                                              {"max_tokens", max_tokens}});
    const Json& choice = json["choices"][0];
    EXPECT_EQ(choice["text"], max_tokens == 0 ? "abc" : "abcA");
    const Json& logprobs = choice["logprobs"];
    ASSERT_EQ(logprobs["tokens"].size(), 3u + static_cast<size_t>(max_tokens));
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    EXPECT_EQ(logprobs["token_logprobs"][2], -2);
    EXPECT_EQ(logprobs["text_offset"][2], 2);
    EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
    if (max_tokens == 1) {
      EXPECT_EQ(logprobs["top_logprobs"][3].dump(), R"({"z":-0.125,"A":-0.25})");
      EXPECT_EQ(logprobs["text_offset"][3], 3);
    }
  }
}

TEST_F(RouterTest, StreamedLogprobsConcatenateToTheWhole) {
  StartRouter(WithLogprobs);
  const Json body = {{"model", "m"}, {"prompt", "abc"}, {"logprobs", 0}, {"max_tokens", 9}};
  const Json whole = Ask("/v1/completions", body)["choices"][0]["logprobs"];
  Json joined;
  for (const Json& event : Stream("/v1/completions", body)) {
    for (const auto& [name, list] : event["choices"][0]["logprobs"].items()) {
      for (const Json& item : list) joined[name].push_back(item);
    }
  }
  EXPECT_EQ(joined.dump(), whole.dump());
}

// The space that SentencePiece puts before a word is text, but not at a text's start. An echoed
// prompt is followed by just what the same request is answered without echo.
TEST_F(RouterTest, EchoedPromptsAndTheSpaceBeforeTheAnswer) {
  model_ = MakeSpaceModel("m", max_positions_);
  StartRouter([](const v1::RequestSpec&) {
    Script script;
    for (const int32_t token : {kSpaceA, kSpaceB}) script.tokens.push_back(Sampled(token));
    return script;
  });
  struct Case {
    Json prompt;
    std::string echoed, answer;
  };
  for (const Case& c : std::vector<Case>{{"a b", "a b", " a b"},
                                         {Json::array({kSpaceB}), "b", " a b"},
                                         {Json::array({kSpaceBos, kSpaceB}), "b", " a b"},
                                         // Nothing is before these answers.
                                         {"", "", "a b"},
                                         {Json::array({kSpaceBos}), "", "a b"}}) {
    const Json body = {{"model", "m"}, {"prompt", c.prompt}, {"max_tokens", 2}};
    Json echo = body;
    echo["echo"] = true;
    EXPECT_EQ(Ask("/v1/completions", body)["choices"][0]["text"], c.answer) << c.prompt;
    EXPECT_EQ(Ask("/v1/completions", echo)["choices"][0]["text"], c.echoed + c.answer) << c.prompt;
    std::string streamed;
    for (const Json& event : Stream("/v1/completions", echo)) {
      streamed += event["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(streamed, c.echoed + c.answer) << c.prompt;
  }
}

}  // namespace
}  // namespace skein::services::testing
