// Properties of every tokenizer, on random texts and ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/tokenizer/stream_decoder.h"
#include "engine/tokenizer/text/utf8.h"
#include "tests/tokenizer/models.h"
#include "tests/tokenizer/random_text.h"

namespace skein::tests {
namespace {

using engine::StreamDecoder;
using engine::StreamOptions;
using engine::Tokenizer;

class PropertyTest : public testing::TestWithParam<TokenizerSource> {
 protected:
  void SetUp() override {
    tokenizer_ = LoadShared(GetParam().name);
    if (tokenizer_ == nullptr) GTEST_SKIP() << "needs " << GetParam().variable;
  }

  std::vector<int32_t> RandomIds() {
    std::vector<int32_t> ids(random_() % 12);
    // Ids of single bytes and of special tokens are frequent; some ids have no token.
    for (int32_t& id : ids) {
      const auto size = static_cast<uint64_t>(tokenizer_->vocab_size());
      const uint64_t kind = random_() % 4;
      id = static_cast<int32_t>(kind == 0   ? random_() % 260
                                : kind == 1 ? size - 1 - random_() % 260
                                            : random_() % (size + 3));
    }
    return ids;
  }

  const Tokenizer* tokenizer_ = nullptr;
  std::mt19937_64 random_{20240607};
};

TEST_P(PropertyTest, DecodeOfEncodeIsTheText) {
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(&random_);
    const std::string expected = GetParam().name == "qwen3" ? Nfc(text) : text;
    for (const bool parse_special : {false, true}) {
      const auto ids =
          tokenizer_->Encode(text, {.add_special_tokens = false, .parse_special = parse_special});
      ASSERT_EQ(tokenizer_->Decode(ids, false), expected);
    }
  }
}

TEST_P(PropertyTest, DeltasAreTextAndAddUpToDecode) {
  for (int i = 0; i < 3000; ++i) {
    const std::vector<int32_t> ids = RandomIds();
    for (const bool skip_special : {false, true}) {
      StreamDecoder stream(*tokenizer_, {.skip_special = skip_special});
      std::string joined;
      for (const int32_t id : ids) {
        const std::string delta = stream.Push(id);
        ASSERT_TRUE(engine::IsUtf8(delta));
        joined += delta;
      }
      joined += stream.Flush();
      ASSERT_EQ(joined, tokenizer_->Decode(ids, skip_special));
    }
  }
}

// The text of prompt plus answer equals the text of the whole.
TEST_P(PropertyTest, AContinuedStreamKeepsTheSpaceBetween) {
  const std::string text = "Once upon a time there was a fox";
  const auto ids = tokenizer_->Encode(text, {.add_special_tokens = false});
  for (size_t prompt = 1; prompt < ids.size(); ++prompt) {
    std::string joined = tokenizer_->Decode(std::span(ids).first(prompt), false);
    StreamDecoder stream(*tokenizer_, {.at_text_start = false});
    for (size_t i = prompt; i < ids.size(); ++i) joined += stream.Push(ids[i]);
    EXPECT_EQ(joined + stream.Flush(), text);
  }
}

TEST_P(PropertyTest, TokenBytesAddUpToTheText) {
  for (int i = 0; i < 500; ++i) {
    std::string text = "x" + RandomText(&random_);
    if (GetParam().name == "qwen3") text = Nfc(text);
    std::string joined;
    for (const int32_t id : tokenizer_->Encode(text, {.add_special_tokens = false}))
      joined += tokenizer_->TokenBytes(id);
    ASSERT_EQ(joined, (GetParam().is_byte_level ? "" : " ") + text);
  }
}

TEST_P(PropertyTest, NoTextHasFewerTokensThanLeastTokens) {
  const auto check = [this](const std::string& text) {
    const auto ids = tokenizer_->Encode(text, {.add_special_tokens = false});
    const int64_t least = tokenizer_->LeastTokens(text);
    ASSERT_LE(least, static_cast<int64_t>(ids.size())) << text.substr(0, 200);
    // A normalizer may shorten text that is not ASCII, so such text proves nothing.
    const bool has_ascii =
        std::any_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
    if (has_ascii) {
      ASSERT_GT(least, 0) << text.substr(0, 200);
    }
  };
  for (int i = 0; i < 1000; ++i) check(RandomText(&random_) + "a");
  for (const char* piece : {" ", "\n", "-", "=", "a", "\xE2\x96\x81", "e\xCC\x81"}) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += piece;
    check(text);
  }
}

TEST_P(PropertyTest, ManyThreadsShareOne) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(RandomText(&random_));
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer_->Encode(text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i)
        wrong[t] += tokenizer_->Encode(texts[i]) != expected[i];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// No operation may be quadratic; 100,000² steps per text would take minutes.
TEST_P(PropertyTest, LongMonotonousTextsEncode) {
  for (const char* unit : {"a", " ", "\n", " \t", "1", "!", "é", "e\u0301\u0316", "你", "\u0f73",
                           "\u180e", "\xF0\x9F\x99\x82", "'s", "<|", "aB", "Aa", "\u1100"}) {
    std::string text;
    while (text.size() < 100'000) text += unit;
    const auto ids = tokenizer_->Encode(text, {.add_special_tokens = false});
    const std::string decoded = tokenizer_->Decode(ids, false);
    const bool normalises = GetParam().name == "qwen3";
    EXPECT_TRUE(normalises || decoded == text) << unit;
    EXPECT_TRUE(tokenizer_->Encode(decoded, {.add_special_tokens = false}) == ids) << unit;
  }
}

TEST_P(PropertyTest, BytesThatAreNotTextBecomeReplacementCharacters) {
  const auto ids = tokenizer_->Encode("a\xFF\xE2\x82z", {.add_special_tokens = false});
  EXPECT_EQ(tokenizer_->Decode(ids, false), "a\uFFFD\uFFFDz");
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, PropertyTest, testing::ValuesIn(TokenizerSources()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::tests
