#include "services/router/generation/generation.h"

#include <gtest/gtest.h>

#include "proto/common.pb.h"
#include "services/router/api/identity.h"
#include "services/router/generation/prompt.h"
#include "services/router/testing/byte_model.h"

namespace skein::services {
namespace {

using openai::GenerationOptions;
using openai::Kind;

int64_t MaxTokens(Kind kind, std::optional<int64_t> asked, int64_t prompt, std::string* code) {
  GenerationOptions options;
  options.max_tokens = asked;
  int64_t max_tokens = -1;
  const auto error = ResolveMaxTokens(kind, options, {100, 80}, prompt, &max_tokens);
  *code = error ? error->code : "";
  return max_tokens;
}

TEST(ResolveMaxTokensTest, DefaultsAndLimits) {
  std::string code;
  EXPECT_EQ(MaxTokens(Kind::kCompletion, {}, 50, &code), 16);
  EXPECT_EQ(MaxTokens(Kind::kChat, {}, 50, &code), 50);
  int64_t by_default = 0;
  EXPECT_FALSE(ResolveMaxTokens(Kind::kChat, {}, {100, 0, 30}, 50, &by_default));
  EXPECT_EQ(by_default, 30);
  EXPECT_FALSE(ResolveMaxTokens(Kind::kChat, {}, {100, 0, 70}, 50, &by_default));
  EXPECT_EQ(by_default, 50);  // what is left
  EXPECT_EQ(MaxTokens(Kind::kCompletion, 20, 80, &code), 20);
  EXPECT_EQ(MaxTokens(Kind::kCompletion, 0, 80, &code), 0);
  EXPECT_EQ(code, "");
  MaxTokens(Kind::kCompletion, 21, 80, &code);
  EXPECT_EQ(code, "context_length_exceeded");
  MaxTokens(Kind::kCompletion, 1, 81, &code);
  EXPECT_EQ(code, "context_length_exceeded");
  int64_t max_tokens = 0;
  EXPECT_EQ(ResolveMaxTokens(Kind::kCompletion, {}, {100, 0}, 95, &max_tokens), std::nullopt);
  EXPECT_EQ(max_tokens, 5);  // the default gives way
  EXPECT_TRUE(ResolveMaxTokens(Kind::kChat, {}, {100, 0}, 100, &max_tokens).has_value());
  GenerationOptions options;
  options.max_tokens = 40;
  EXPECT_FALSE(ResolveMaxTokens(Kind::kChat, options, {100, 0, 30}, 50, &by_default));
  EXPECT_EQ(by_default, 40);  // the client's word counts
  options.max_tokens = 3;
  options.min_tokens = 4;
  EXPECT_EQ(ResolveMaxTokens(Kind::kChat, options, {100, 0}, 1, &max_tokens)->param, "min_tokens");
}

TEST(MakeSpecTest, DefaultsOfTheModelGiveWayToTheRequest) {
  const auto model = testing::MakeByteModel("m", 100);
  model->defaults.temperature = 0.6;
  model->defaults.top_k = 20;
  GenerationOptions options;
  options.top_k = 0;
  options.top_p = 0;
  options.logit_bias = {{5, -1.f}};
  options.presence_penalty = 0.5;
  options.frequency_penalty = 0.25;
  options.min_tokens = 3;
  const auto spec = MakeSpec(*model, options, {1, 2}, 9, 77, 0, true);
  v1::SamplingParams sampling;
  ASSERT_TRUE(sampling.ParseFromString(spec->sampling));
  EXPECT_FLOAT_EQ(sampling.temperature(), 0.6f);
  EXPECT_EQ(sampling.top_k(), 0);
  EXPECT_GT(sampling.top_p(), 0);
  EXPECT_EQ(sampling.seed(), 77u);
  EXPECT_EQ(sampling.top_logprobs(), -1);
  EXPECT_EQ(sampling.logit_bias(0).token(), 5);
  EXPECT_EQ(sampling.presence_penalty(), 0.5f);
  EXPECT_EQ(sampling.frequency_penalty(), 0.25f);
  EXPECT_EQ(spec->min_tokens, 3);
  EXPECT_TRUE(spec->want_prompt_logprobs);
  EXPECT_EQ(spec->stop_token_ids, std::vector<int32_t>{testing::kEos});
}

TEST(MakeSpecTest, StopTokensAreSentOnce) {
  const auto model = testing::MakeByteModel("m", 100);
  GenerationOptions options;
  options.stop_token_ids = {7, testing::kEos, 7, 8};
  EXPECT_EQ(MakeSpec(*model, options, {1}, 9, 77, 0, false)->stop_token_ids,
            (std::vector<int32_t>{testing::kEos, 7, 8}));
  options.ignore_eos = true;
  EXPECT_EQ(MakeSpec(*model, options, {1}, 9, 77, 0, false)->stop_token_ids,
            (std::vector<int32_t>{7, testing::kEos, 8}));
}

TEST(MakeSpecTest, BestOfNeedsLogprobs) {
  const auto model = testing::MakeByteModel("m", 100);
  const auto top_logprobs = [&](int64_t n, int64_t best_of, int asked) {
    GenerationOptions options;
    options.n = n;
    options.best_of = best_of;
    options.top_logprobs = asked;
    v1::SamplingParams sampling;
    EXPECT_TRUE(
        sampling.ParseFromString(MakeSpec(*model, options, {1}, 9, 77, 0, false)->sampling));
    return sampling.top_logprobs();
  };
  EXPECT_EQ(top_logprobs(2, 2, -1), -1);
  EXPECT_EQ(top_logprobs(1, 2, -1), 0);
  EXPECT_EQ(top_logprobs(1, 2, 3), 3);
}

TEST(CheckTokenIdsTest, NameTheVocabulary) {
  const auto model = testing::MakeByteModel("m", 100);
  GenerationOptions options;
  options.stop_token_ids = {257};
  EXPECT_FALSE(CheckTokenIds(*model, options));
  options.stop_token_ids.push_back(258);
  const auto error = CheckTokenIds(*model, options);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "stop_token_ids");
  EXPECT_EQ(error->message,
            "Invalid 'stop_token_ids': token id 258 is out of range (vocabulary size 258).");
}

// Each travels in one message with a limit.
TEST(LengthLimitsTest, PromptsAndTheirLogprobsFitTheirMessages) {
  EXPECT_EQ((LengthLimits{.max_positions = 1 << 24}.prompt_tokens_max()), 3'932'160);
  EXPECT_EQ((LengthLimits{.max_positions = 1000}.prompt_tokens_max()), 1000);
  EXPECT_FALSE(CheckPromptLogprobs(200'000, 20));
  EXPECT_FALSE(CheckPromptLogprobs(3'932'160, 0));
  const auto error = CheckPromptLogprobs(300'000, 20);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message,
            "Invalid 'logprobs': 20 alternatives for each of 300000 prompt tokens may need "
            "82200000 bytes; this server sends at most 65011712. Ask for fewer, or echo a shorter "
            "prompt.");
}

TEST(SharePromptsTest, FurtherChoicesNameTheFirstOfTheirPrompt) {
  std::vector<std::shared_ptr<scheduler::RequestSpec>> specs;
  for (uint64_t serial = 1; serial <= 4; ++serial) {
    specs.push_back(std::make_shared<scheduler::RequestSpec>());
    specs.back()->id = {7, serial};
    specs.back()->max_tokens = serial == 2 ? 0 : 5;
  }
  SharePrompts(2, &specs);
  EXPECT_EQ(specs[0]->prompt_of, std::nullopt);
  EXPECT_EQ(specs[1]->prompt_of, std::nullopt) << "nothing is sampled";
  EXPECT_EQ(specs[2]->prompt_of, std::nullopt);
  EXPECT_EQ(specs[3]->prompt_of, (scheduler::RequestId{7, 3}));
}

TEST(ChoiceSeedTest, FirstChoiceKeepsTheSeed) {
  EXPECT_EQ(ChoiceSeed(5, 0), 5u);
  EXPECT_NE(ChoiceSeed(5, 1), ChoiceSeed(5, 2));
  EXPECT_NE(ChoiceSeed(5, 1), ChoiceSeed(6, 1));
}

TEST(PreparePromptTest, NothingBecomesTheStartOfText) {
  const auto model = testing::MakeByteModel("m", 100);
  PreparedPrompt prompt;
  ASSERT_FALSE(PreparePrompt(*model, std::string(), {.tokens_max = 100}, &prompt));
  EXPECT_EQ(prompt.tokens, std::vector<int32_t>{testing::kBos});
  EXPECT_TRUE(prompt.at_text_start);
  PreparedPrompt text;
  ASSERT_FALSE(PreparePrompt(*model, std::string("a"), {.tokens_max = 100}, &text));
  EXPECT_FALSE(text.at_text_start);
  PreparedPrompt ids;
  ASSERT_FALSE(PreparePrompt(*model, std::vector<int32_t>{testing::kBos, 'a'},
                             {.with_text = true, .tokens_max = 100}, &ids));
  EXPECT_FALSE(ids.at_text_start);
  EXPECT_EQ(ids.text, "a") << "special tokens are no text";
}

// A tokenizer may know tokens that the embedding has no row for; an engine step would fail on one.
TEST(PreparePromptTest, IdsAreBelowTheVocabulary) {
  const auto model = testing::MakeByteModel("m", 100);
  model->vocab_size = 200;
  PreparedPrompt prompt;
  EXPECT_FALSE(PreparePrompt(*model, std::vector<int32_t>{199}, {.tokens_max = 100}, &prompt));
  const auto error = PreparePrompt(*model, std::vector<int32_t>{200}, {.tokens_max = 100}, &prompt);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "prompt");
  EXPECT_EQ(error->message,
            "Invalid 'prompt': token id 200 is out of range (vocabulary size 200).");
}

// The template drops a part of the last message, so that it is found nowhere, and almost found at
// each of 8 million places: comparing at each of them would take hours.
TEST(PrepareChatTest, ARewrittenFinalMessageIsLookedForInLinearTime) {
  const auto model = testing::MakeByteModel("m", 100);
  model->chat_template =
      engine::ChatTemplate::Parse(
          "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}")
          .value();
  constexpr size_t kLong = 8 << 20;
  openai::ChatInput chat;
  chat.continue_final_message = true;
  chat.add_generation_prompt = false;
  chat.messages = {{{"role", "user"}, {"content", std::string(kLong, 'a')}},
                   {{"role", "assistant"}, {"content", std::string(kLong / 2, 'a') + "</think>x"}}};
  PreparedPrompt prompt;
  const auto error = PrepareChat(*model, chat, {}, 100, &prompt);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "continue_final_message");
}

TEST(IdentityTest, TraceparentMustBeWellFormed) {
  const auto trace = [](std::string value) {
    http::Request request;
    request.headers = {{"Traceparent", std::move(value)}};
    return TraceparentOf(request);
  };
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(trace(good), good);
  EXPECT_EQ(trace(""), "");
  EXPECT_EQ(trace(good + "0"), "");
  EXPECT_EQ(trace("00-" + std::string(32, '0') + good.substr(35)), "");
  EXPECT_EQ(trace("00-" + std::string(32, 'X') + good.substr(35)), "");
}

}  // namespace
}  // namespace skein::services
