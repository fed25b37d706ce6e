#include "engine/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::engine {
namespace {

// Byte tokens <0x..> of F0 9F 99 82 (🙂) and E2, then words with SentencePiece's space.
constexpr char kJson[] = R"({
  "added_tokens": [{"id": 0, "content": "<s>", "special": true}],
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 1}]},
  "model": {"type": "BPE", "vocab": {"<s>": 0, "<0xF0>": 1, "<0x9F>": 2, "<0x99>": 3, "<0x82>": 4,
    "<0xE2>": 5, "▁a": 6, "▁": 7, "b": 8, "▁▁": 9}, "merges": []}})";

class StreamDecoderTest : public testing::Test {
 protected:
  std::vector<std::string> Deltas(const std::vector<int32_t>& ids, StreamOptions options = {}) {
    StreamDecoder stream(*tokenizer_, options);
    std::vector<std::string> deltas;
    for (const int32_t id : ids) deltas.push_back(stream.Push(id));
    deltas.push_back(stream.Flush());
    return deltas;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = *Tokenizer::FromJson(kJson, "");
};

using Texts = std::vector<std::string>;

TEST_F(StreamDecoderTest, ACharacterComesWhole) {
  EXPECT_EQ(Deltas({1, 2, 3, 4, 8}), (Texts{"", "", "", "🙂", "b", ""}));
}

TEST_F(StreamDecoderTest, TheSpaceBeforeATextIsDroppedOnce) {
  EXPECT_EQ(Deltas({6, 6}), (Texts{"a", " a", ""}));
  EXPECT_EQ(Deltas({0, 6}), (Texts{"", "a", ""}));
  EXPECT_EQ(Deltas({7, 6}), (Texts{"", " a", ""}));
  EXPECT_EQ(Deltas({8, 6}), (Texts{"b", " a", ""}));
  EXPECT_EQ(Deltas({0, 6}, {.skip_special = false}), (Texts{"<s>", " a", ""}));
}

TEST_F(StreamDecoderTest, AContinuationKeepsItsSpace) {
  EXPECT_EQ(Deltas({6, 6}, {.at_text_start = false}), (Texts{" a", " a", ""}));
}

TEST_F(StreamDecoderTest, WhatMayBeStrippedAtTheEndWaits) {
  EXPECT_EQ(Deltas({8, 7, 7, 8}), (Texts{"b", "", " ", " b", ""}));
  EXPECT_EQ(Deltas({8, 9}), (Texts{"b", " ", ""}));
}

TEST_F(StreamDecoderTest, EachByteThatIsNoTextIsReplaced) {
  EXPECT_EQ(Deltas({1, 2, 8}), (Texts{"", "", "��b", ""}));
  EXPECT_EQ(Deltas({5, 5, 8}), (Texts{"", "�", "�b", ""}));
  EXPECT_EQ(Deltas({2, 8, 1, 2, 3}), (Texts{"�", "b", "", "", "", "���"}));
}

TEST_F(StreamDecoderTest, WhatWasStrippedAtTheEndIsNotOfTheNextText) {
  StreamDecoder stream(*tokenizer_);
  EXPECT_EQ(stream.Push(8), "b");
  EXPECT_EQ(stream.Push(7), "");
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Push(8), "b");
}

TEST_F(StreamDecoderTest, AFlushedDecoderBeginsAnew) {
  StreamDecoder stream(*tokenizer_);
  EXPECT_EQ(stream.Push(6), "a");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Flush(), "�");
  EXPECT_EQ(stream.Push(6), "a");
}

}  // namespace
}  // namespace skein::engine
