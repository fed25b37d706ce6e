#include "engine/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace skein::engine {
namespace {

using Ids = std::vector<int32_t>;

// Sections of a tokenizer.json as JSON text. The vocabulary is the letters a to e, space as Ġ and
// as ▁, "<unk>", and what the merges make, in order: unk 0, a 1, b 2, c 3, d 4, e 5, Ġ 6, ▁ 7, ab
// 8, abc 9, Ġab 10, ▁ab 11.
struct SmallTokenizer {
  std::string added_tokens = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = R"({"type": "Fuse"})";
  std::string model_extra;  // e.g. R"(, "ignore_merges": true)"

  std::string Json() const {
    return R"({"added_tokens": )" + added_tokens + R"(, "normalizer": )" + normalizer +
           R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" + post_processor +
           R"(, "decoder": )" + decoder + R"(, "model": {"type": "BPE", "vocab": {
             "<unk>": 0, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "Ġ": 6, "▁": 7, "ab": 8, "abc": 9,
             "Ġab": 10, "▁ab": 11}, "merges": ["a b", ["ab", "c"], "Ġ ab", "▁ ab"])" +
           model_extra + "}}";
  }
};

constexpr char kByteLevel[] =
    R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";

std::unique_ptr<Tokenizer> Make(const SmallTokenizer& small, const std::string& config = "") {
  auto tokenizer = Tokenizer::FromJson(small.Json(), config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

absl::Status ErrorOf(const SmallTokenizer& small, const std::string& config = "") {
  return Tokenizer::FromJson(small.Json(), config).status();
}

std::string Added(int id, const std::string& content, const std::string& extra = "") {
  return R"({"id": )" + std::to_string(id) + R"(, "content": ")" + content + "\"" + extra + "}";
}

TEST(TokenizerTest, ReadsBothFormsOfMerges) { EXPECT_EQ(Make({})->Encode("abcab"), (Ids{9, 8})); }

TEST(TokenizerTest, ByteLevelPiecesDoNotMergeAcrossWords) {
  const auto tokenizer = Make({.pre_tokenizer = kByteLevel, .decoder = kByteLevel});
  EXPECT_EQ(tokenizer->Encode("ab abc ab"), (Ids{8, 6, 9, 10}));
  EXPECT_EQ(tokenizer->Decode(Ids{8, 6, 9, 10}, false), "ab abc ab");
  EXPECT_EQ(tokenizer->TokenBytes(10), " ab");
}

TEST(TokenizerTest, IgnoreMergesTakesAPieceThatIsAToken) {
  SmallTokenizer small{.pre_tokenizer = kByteLevel, .decoder = kByteLevel};
  EXPECT_EQ(Make(small)->Encode("<unk>"), Ids());
  small.model_extra = R"(, "ignore_merges": true)";
  EXPECT_EQ(Make(small)->Encode("abc"), Ids{9});
}

TEST(TokenizerTest, UnknownCharactersFuseWhereAsked) {
  SmallTokenizer small{.model_extra = R"(, "unk_token": "<unk>")"};
  EXPECT_EQ(Make(small)->Encode("axyb"), (Ids{1, 0, 0, 2}));
  small.model_extra += R"(, "fuse_unk": true)";
  EXPECT_EQ(Make(small)->Encode("axyb"), (Ids{1, 0, 2}));
}

TEST(TokenizerTest, NothingIsSaidOfTheLengthWhereTextCanVanish) {
  EXPECT_EQ(Make({})->LeastTokens("abcabcabc"), 0);  // unknown characters are dropped
  EXPECT_EQ(
      Make({.model_extra = R"(, "unk_token": "<unk>", "fuse_unk": true)"})->LeastTokens("zzzzzzzz"),
      0);
}

TEST(TokenizerTest, SpecialTokensInTheTextAreAChoice) {
  const auto tokenizer =
      Make({.added_tokens = "[" + Added(12, "<d>", R"(, "special": true)") + "," +
                            Added(13, "<e>", R"(, "special": false)") + "]"});
  EXPECT_EQ(tokenizer->Encode("a<d>b<e>"), (Ids{1, 12, 2, 13}));
  EXPECT_EQ(tokenizer->Encode("a<d>b<e>", {.parse_special = false}), (Ids{1, 4, 2, 13}));
  EXPECT_EQ(tokenizer->Decode(Ids{1, 12, 13}, true), "a<e>");
  EXPECT_EQ(tokenizer->Decode(Ids{1, 12, 13}, false), "a<d><e>");
  EXPECT_TRUE(tokenizer->IsSpecial(12));
  EXPECT_FALSE(tokenizer->IsSpecial(13));
  EXPECT_EQ(tokenizer->SpecialId("<d>"), 12);
  EXPECT_EQ(tokenizer->SpecialId("<x>"), std::nullopt);
  EXPECT_EQ(tokenizer->vocab_size(), 14);
}

TEST(TokenizerTest, IdsWithoutATokenYieldNothing) {
  const auto tokenizer = Make({});
  EXPECT_EQ(tokenizer->Decode(Ids{-1, 1, 12, 1 << 30}, false), "a");
  EXPECT_EQ(tokenizer->TokenBytes(-5), "");
  EXPECT_FALSE(tokenizer->IsSpecial(99));
}

TEST(TokenizerTest, AddedTokensOfTheConfigAreKnown) {
  const auto tokenizer =
      Make({}, R"({"added_tokens_decoder": {"12": {"content": "<d>", "special": true}}})");
  EXPECT_EQ(tokenizer->Encode("a<d>"), (Ids{1, 12}));
}

TEST(TokenizerTest, NormalizedTokensAreFoundInNormalisedText) {
  const auto tokenizer =
      Make({.added_tokens = "[" + Added(12, "<D>", R"(, "normalized": true)") + "]",
            .normalizer = R"({"type": "Lowercase"})"});
  EXPECT_EQ(tokenizer->Encode("A<D>B<d>"), (Ids{1, 12, 2, 12}));
}

TEST(TokenizerTest, PostProcessorSurrounds) {
  const auto tokenizer = Make({.post_processor = R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "B"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "E"}}],
       "special_tokens": {"B": {"ids": [4]}, "E": {"ids": [5, 5]}}}]})"});
  EXPECT_EQ(tokenizer->Encode("ab"), (Ids{4, 8, 5, 5}));
  EXPECT_EQ(tokenizer->Encode("ab", {.add_special_tokens = false}), Ids{8});
  const auto roberta = Make(
      {.post_processor = R"({"type": "RobertaProcessing", "cls": ["d", 4], "sep": ["e", 5]})"});
  EXPECT_EQ(roberta->Encode("ab"), (Ids{4, 8, 5}));
}

TEST(TokenizerTest, ConfigDecidesAboutBosAndEos) {
  const std::string names = R"({"bos_token": "d", "eos_token": {"content": "e"})";
  const SmallTokenizer with_bos{.post_processor = R"({"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "d"}}, {"Sequence": {"id": "A"}}],
       "special_tokens": {"d": {"ids": [4]}}})"};
  EXPECT_EQ(Make(with_bos, names + "}")->Encode("a"), (Ids{4, 1}));
  EXPECT_EQ(Make(with_bos, names + R"(, "add_bos_token": true})")->Encode("a"), (Ids{4, 1}));
  EXPECT_EQ(Make(with_bos, names + R"(, "add_bos_token": false})")->Encode("a"), Ids{1});
  const auto both = Make({}, names + R"(, "add_bos_token": true, "add_eos_token": true})");
  EXPECT_EQ(both->Encode("a"), (Ids{4, 1, 5}));
  EXPECT_EQ(both->bos_id(), 4);
  EXPECT_EQ(both->eos_token(), "e");
}

TEST(TokenizerTest, NamesThatAreNoTokensAreAbsent) {
  const auto tokenizer = Make(
      {},
      R"({"bos_token": "<s>", "eos_token": null, "unk_token": "<unk>", "add_bos_token": true})");
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->bos_token(), std::nullopt);
  EXPECT_EQ(tokenizer->eos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->unk_token(), "<unk>");
  EXPECT_EQ(tokenizer->Encode("a"), Ids{1});
}

TEST(TokenizerTest, ChatTemplateIsVerbatim) {
  EXPECT_EQ(Make({}, R"({"chat_template": "{{ x }}\n"})")->chat_template(), "{{ x }}\n");
  EXPECT_EQ(Make({}, R"({"chat_template": [{"name": "rag", "template": "r"},
                                           {"name": "default", "template": "d"}]})")
                ->chat_template(),
            "d");
  EXPECT_EQ(Make({})->chat_template(), std::nullopt);
}

TEST(TokenizerTest, LoadsAFolder) {
  const std::filesystem::path dir = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "model";
  EXPECT_EQ(Tokenizer::Load(dir.string()).status().code(), absl::StatusCode::kNotFound);
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "tokenizer.json") << SmallTokenizer{}.Json();
  auto tokenizer = Tokenizer::Load(dir.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), std::nullopt);
  std::ofstream(dir / "tokenizer_config.json") << R"({"bos_token": "a", "chat_template": "old"})";
  std::ofstream(dir / "chat_template.jinja") << "new";
  tokenizer = Tokenizer::Load(dir.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->chat_template(), "new");
}

struct Refusal {
  SmallTokenizer small;
  std::string field, value;
};

TEST(TokenizerTest, RefusesWhatItDoesNotSupportByName) {
  const Refusal refusals[] = {
      {{.model_extra = R"(, "type": "Unigram")"}, "model.type", "Unigram"},
      {{.model_extra = R"(, "type": "WordPiece")"}, "model.type", "WordPiece"},
      {{.model_extra = R"(, "dropout": 0.1)"}, "model.dropout", "0.1"},
      {{.model_extra = R"(, "end_of_word_suffix": "</w>")"}, "model.end_of_word_suffix", "</w>"},
      {{.normalizer = R"({"type": "Precompiled"})"}, "normalizer.type", "Precompiled"},
      {{.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "Nmt"}]})"},
       "normalizer.normalizers[0].type",
       "Nmt"},
      {{.pre_tokenizer = R"({"type": "BertPreTokenizer"})"},
       "pre_tokenizer.type",
       "BertPreTokenizer"},
      {{.pre_tokenizer = R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"})"},
       "pre_tokenizer.behavior",
       "Odd"},
      {{.pre_tokenizer =
            R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})"},
       "pre_tokenizer.pretokenizers[1]",
       "Digits"},
      {{.post_processor = R"({"type": "Odd"})"}, "post_processor.type", "Odd"},
      {{.decoder = R"({"type": "WordPiece"})"}, "decoder.type", "WordPiece"},
      {{.decoder = "null"}, "decoder", "null"},
  };
  for (const Refusal& refusal : refusals) {
    const absl::Status status = ErrorOf(refusal.small);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_NE(status.message().find(refusal.field), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(refusal.value), absl::string_view::npos) << status;
  }
}

TEST(TokenizerTest, RefusesMalformedFiles) {
  const SmallTokenizer bad[] = {
      {.added_tokens = "{}"},
      {.added_tokens = "[1]"},
      {.added_tokens = "[" + Added(-1, "x") + "]"},
      {.added_tokens = "[" + Added(1 << 30, "x") + "]"},
      {.added_tokens = R"([{"content": "x"}])"},
      {.normalizer = "[]"},
      {.normalizer = R"({"type": 3})"},
      {.normalizer = R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})"},
      {.normalizer = R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})"},
      {.pre_tokenizer = R"({"type": "Split"})"},
      {.post_processor = R"({"type": "TemplateProcessing", "single": []})"},
      {.post_processor = R"({"type": "RobertaProcessing"})"},
      {.decoder = R"({"type": "Strip", "content": "", "start": 1, "stop": 0})"},
      {.decoder = R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})"},
      {.model_extra = R"(, "unk_token": "<none>")"},
      {.model_extra = R"(, "vocab": {"x": 1})"},
      {.model_extra = R"(, "merges": ["a b c"])"},
  };
  for (const SmallTokenizer& small : bad)
    EXPECT_EQ(ErrorOf(small).code(), absl::StatusCode::kInvalidArgument) << small.Json();
  EXPECT_FALSE(ErrorOf({}, "[").ok());
  EXPECT_FALSE(ErrorOf({}, "[]").ok());
  EXPECT_FALSE(ErrorOf({}, R"({"bos_token": 1})").ok());
}

TEST(TokenizerTest, RefusesMalformedModels) {
  for (const char* text :
       {"", "null", "[]", "{}", "{\"model\"", R"({"model": []})", R"({"model": {}})",
        R"({"model": {"vocab": {"a": 0, "a": 1}}})", R"({"model": {"vocab": {"a": 0, "b": 0}}})",
        R"({"model": {"vocab": {"a": -1}}})", R"({"model": {"vocab": {"a": 1e9}}})",
        R"({"model": {"vocab": {"a": 99999999999999999999}}})",
        R"({"model": {"vocab": {"a": {}}}})",
        R"({"model": {"vocab": {"a": 0}, "merges": [["a"]]}})",
        R"({"model": {"vocab": {"a": 0}, "merges": ["a a"]}})",
        R"({"model": {"vocab": {"a": 0}, "merges": {"a": "a"}}})",
        "{\"model\": {\"vocab\": {\"\xFF\": 0}}}"})
    EXPECT_EQ(Tokenizer::FromJson(text, "").status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  EXPECT_FALSE(Tokenizer::FromJson(std::string(100000, '['), "").ok());
}

}  // namespace
}  // namespace skein::engine
