// Normalizers, pre-tokenizers, added tokens and patterns, one by one.
#include <gtest/gtest.h>

#include "engine/tokenizer/bpe/byte_level.h"
#include "engine/tokenizer/components/added_tokens.h"
#include "engine/tokenizer/components/normalizer.h"
#include "engine/tokenizer/components/pattern.h"
#include "engine/tokenizer/components/pre_tokenizer.h"

namespace skein::engine {
namespace {

using Texts = std::vector<std::string>;

std::string Normalize(const char* json, std::string_view text) {
  const Json document = Json::parse(json);
  return Normalizer::FromJson(&document)->Apply(text);
}

Texts PreTokenize(const std::string& json, std::string_view text, bool at_start = true) {
  const Json document = Json::parse(json);
  const auto pre_tokenizer = PreTokenizer::FromJson(&document);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  Pieces pieces;
  if (pre_tokenizer.ok()) pre_tokenizer->Split(text, at_start, &pieces);
  return Texts(pieces.views.begin(), pieces.views.end());
}

std::string Split(const char* pattern, const char* behavior, bool invert = false) {
  return std::string(R"({"type": "Split", "pattern": )") + pattern + R"(, "behavior": ")" +
         behavior + R"(", "invert": )" + (invert ? "true" : "false") + "}";
}

TEST(NormalizerTest, Forms) {
  EXPECT_EQ(Normalize(R"({"type": "NFC"})", "e\u0301 \u1100\u1161\u11A8 ﬁ"), "é 각 ﬁ");
  EXPECT_EQ(Normalize(R"({"type": "NFD"})", "é각"), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(Normalize(R"({"type": "NFKC"})", "ﬁ Ⅷ ①"), "fi VIII 1");
  EXPECT_EQ(Normalize(R"({"type": "NFKD"})", "ﬁé"), "fie\u0301");
  EXPECT_EQ(Normalize(R"({"type": "NFD"})", "a\u0301\u0316"), "a\u0316\u0301");  // marks in order
  EXPECT_EQ(Normalize(R"({"type": "NFC"})", "你好 abc Привет"), "你好 abc Привет");
  const std::string with_nul("a\0é", 4);
  EXPECT_EQ(Normalize(R"({"type": "NFC"})", with_nul), with_nul);
}

TEST(NormalizerTest, Rewriting) {
  EXPECT_EQ(Normalize(R"({"type": "Lowercase"})", "ÀB İΣ"), "àb i\u0307σ");
  EXPECT_EQ(Normalize(R"({"type": "StripAccents"})", "e\u0301a"), "ea");
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_right": false})", " \u3000a "), "a ");
  EXPECT_EQ(Normalize(R"({"type": "Strip"})", " \t\n"), "");
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": "_"})", "a"), "_a");
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": "_"})", ""), "");
  EXPECT_EQ(Normalize(R"({"type": "Replace", "pattern": {"String": "."}, "content": "!"})", "a.b."),
            "a!b!");
  EXPECT_EQ(Normalize(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "$0"})",
                      "a   b c"),
            "a$0b c");
  EXPECT_EQ(
      Normalize(
          R"({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]})",
          "é"),
      "e");
}

TEST(PreTokenizerTest, SplitBehaviors) {
  constexpr char kDash[] = R"({"String": "-"})";
  constexpr char kText[] = "the-final--countdown";
  EXPECT_EQ(PreTokenize(Split(kDash, "Removed"), kText), (Texts{"the", "final", "countdown"}));
  EXPECT_EQ(PreTokenize(Split(kDash, "Isolated"), kText),
            (Texts{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(PreTokenize(Split(kDash, "MergedWithPrevious"), kText),
            (Texts{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(PreTokenize(Split(kDash, "MergedWithNext"), kText),
            (Texts{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(PreTokenize(Split(kDash, "Contiguous"), kText),
            (Texts{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(PreTokenize(Split(R"({"Regex": "\\w+"})", "Removed", true), "a, bc"),
            (Texts{"a", "bc"}));
}

TEST(PreTokenizerTest, ByteLevel) {
  EXPECT_EQ(PreTokenize(R"({"type": "ByteLevel"})", "it's 12 o'clock  \n x"),
            (Texts{" it", "'s", " 12", " o", "'", "clock", "  \n", " x"}));
  EXPECT_EQ(
      PreTokenize(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})", "a b"),
      Texts{"a b"});
}

TEST(PreTokenizerTest, Metaspace) {
  const auto metaspace = [](const std::string& fields) {
    return R"({"type": "Metaspace")" + fields + "}";
  };
  EXPECT_EQ(PreTokenize(metaspace(""), "a  b"), (Texts{"▁a", "▁", "▁b"}));
  EXPECT_EQ(PreTokenize(metaspace(R"(, "split": false)"), " a b"), Texts{"▁a▁b"});
  EXPECT_EQ(PreTokenize(metaspace(R"(, "prepend_scheme": "never")"), "a b"), (Texts{"a", "▁b"}));
  EXPECT_EQ(PreTokenize(metaspace(R"(, "add_prefix_space": false)"), "a b"), (Texts{"a", "▁b"}));
  EXPECT_EQ(PreTokenize(metaspace(R"(, "prepend_scheme": "first")"), "a", true), Texts{"▁a"});
  EXPECT_EQ(PreTokenize(metaspace(R"(, "prepend_scheme": "first")"), "a", false), Texts{"a"});
}

TEST(PreTokenizerTest, Classes) {
  EXPECT_EQ(PreTokenize(R"({"type": "Digits"})", "a12½b"), (Texts{"a", "12½", "b"}));
  EXPECT_EQ(PreTokenize(R"({"type": "Digits", "individual_digits": true})", "a12"),
            (Texts{"a", "1", "2"}));
  EXPECT_EQ(PreTokenize(R"({"type": "Punctuation"})", "a,¿b"), (Texts{"a", ",", "¿", "b"}));
  EXPECT_EQ(PreTokenize(R"({"type": "Whitespace"})", "a b_c,, d"), (Texts{"a", "b_c", ",,", "d"}));
  EXPECT_EQ(PreTokenize(R"({"type": "WhitespaceSplit"})", " a,b \u3000c"), (Texts{"a,b", "c"}));
  EXPECT_EQ(PreTokenize(R"({"type": "CharDelimiterSplit", "delimiter": "-"})", "a-b"),
            (Texts{"a", "b"}));
  EXPECT_EQ(PreTokenize(R"({"type": "WhitespaceSplit"})", ""), Texts());
}

TEST(PatternTest, TranslatesOnigurumasClasses) {
  EXPECT_EQ(TranslateRegex(R"([^\s\p{L}]+|\S\\s)"),
            R"([^\t-\r\x{85}\p{Z}\p{L}]+|[^\t-\r\x{85}\p{Z}]\\s)");
  EXPECT_EQ(TranslateRegex("a\\"), "a\\");
}

// Unicode took U+180E out of the white space; PCRE2's \s has it still.
TEST(PatternTest, WhiteSpaceIsUnicodes) {
  std::vector<Span> spans;
  Pattern::Regex(R"(\s)")->Cut("\u180E\u0085\u3000", &spans);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_FALSE(spans[0].is_match);
  EXPECT_TRUE(spans[1].is_match);
  EXPECT_TRUE(spans[2].is_match);
}

TEST(PatternTest, ExplosiveExpressionsEnd) {
  const std::string text = std::string(5000, 'a') + "b";
  for (const char* expression : {"(a+)+$", "(a|aa)+$", "(.*)*x", "(a*)*\\1b$"}) {
    std::vector<Span> spans;
    Pattern::Regex(expression)->Cut(text, &spans);
    ASSERT_FALSE(spans.empty());
    EXPECT_EQ(spans.back().end, text.size());
  }
}

TEST(PatternTest, CombinedClassesAreRefused) {
  for (const char* expression :
       {R"([a-z&&[^aeiou]]+)", R"([\p{L}&&\p{Lu}])", "x[^a&&b]", "[a[bc]]", "[]&&a]"}) {
    const auto pattern = Pattern::Regex(expression);
    ASSERT_FALSE(pattern.ok()) << expression;
    EXPECT_NE(pattern.status().message().find("class"), std::string::npos) << pattern.status();
  }
  for (const char* expression :
       {"a&&b", R"([a\&&])", R"([\[&])", "[[:alpha:]&]", "[&]&", "[]&]&&"}) {
    EXPECT_TRUE(Pattern::Regex(expression).ok()) << expression;
  }
}

TEST(PatternTest, EmptyMatchesAdvance) {
  std::vector<Span> spans;
  Pattern::Regex("x*")->Cut("éx", &spans);
  EXPECT_EQ(spans.back().end, 3u);
  EXPECT_EQ(Pattern::Regex("(?=b)")->ReplaceAll("ab", "-"), "a-b");
}

struct Found {
  int32_t id;
  std::string text;
  bool operator==(const Found&) const = default;
};

std::vector<Found> Find(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.Add(token.content, token);
  std::vector<Segment> segments;
  finder.Cut(text, false, &segments);
  std::vector<Found> found;
  for (const Segment& s : segments)
    found.push_back({s.id, std::string(text.substr(s.begin, s.end - s.begin))});
  return found;
}

TEST(AddedTokensTest, LeftmostLongest) {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "ab"}, {.id = 2, .content = "abc"}, {.id = 3, .content = "bcd"}};
  EXPECT_EQ(Find(tokens, "xabcdab"),
            (std::vector<Found>{{-1, "x"}, {2, "abc"}, {-1, "d"}, {1, "ab"}}));
  EXPECT_EQ(Find(tokens, ""), std::vector<Found>());
}

TEST(AddedTokensTest, StripsAndWords) {
  EXPECT_EQ(
      Find({{.id = 1, .content = "<m>", .lstrip = true, .rstrip = true}}, "a \u3000<m>\n <m>b"),
      (std::vector<Found>{{-1, "a"}, {1, " \u3000<m>\n "}, {1, "<m>"}, {-1, "b"}}));
  EXPECT_EQ(Find({{.id = 1, .content = "ing", .single_word = true}}, "ing sing éing ing"),
            (std::vector<Found>{{1, "ing"}, {-1, " sing éing "}, {1, "ing"}}));
}

TEST(ByteLevelTest, TheAlphabet) {
  EXPECT_EQ(ByteLevelBytes("Ġa"), " a");
  EXPECT_EQ(ByteLevelBytes("Ċ"), "\n");
  EXPECT_EQ(ByteLevelBytes("Ã©"), "é");
  EXPECT_EQ(ByteLevelBytes("Ń"), "\xAD");
  EXPECT_EQ(ByteLevelBytes("ń"), std::nullopt);
  EXPECT_EQ(ByteLevelBytes("a b"), std::nullopt);
}

}  // namespace
}  // namespace skein::engine
