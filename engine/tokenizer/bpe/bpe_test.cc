#include "engine/tokenizer/bpe/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace skein::engine {
namespace {

using Texts = std::vector<std::string>;

const Texts kLetters = {"a", "b", "c", "d"};
const Texts kLettersAndSpace = {"a", "b", std::string(kSentencePieceSpace)};

// Random merges over an alphabet, and the definition of BPE, step by step, with them.
struct RandomBpe {
  // words: "▁" is merged to nothing that stands before it, but to itself.
  RandomBpe(const Texts& alphabet, bool words, std::mt19937_64* random)
      : alphabet(alphabet), tokens(alphabet) {
    while (merges.size() < 60) {
      const std::string left = tokens[(*random)() % tokens.size()];
      const std::string right = tokens[(*random)() % tokens.size()];
      if (words && right.starts_with(kSentencePieceSpace) && !left.ends_with(kSentencePieceSpace))
        continue;
      if (words && right.starts_with(kSentencePieceSpace) && left.find_first_of("ab") != left.npos)
        continue;
      const std::string merged = left + right;
      if (merged.size() > 16 || !pairs.insert({left, right}).second) continue;
      merges.push_back({left, right});
      if (std::find(tokens.begin(), tokens.end(), merged) == tokens.end()) tokens.push_back(merged);
    }
  }

  BpeModel Model(bool byte_level) const {
    TokenizerJson json;
    json.document = Json::parse(R"({"model": {"type": "BPE"}})");
    for (size_t id = 0; id < tokens.size(); ++id) {
      json.vocab_tokens.Add(tokens[id]);
      json.vocab_ids.push_back(static_cast<int64_t>(id));
    }
    for (const auto& [left, right] : merges) {
      json.merges.Add(left);
      json.merges.Add(right);
    }
    return *BpeModel::Create(json, byte_level);
  }

  Texts RandomSymbols(size_t count, std::mt19937_64* random) const {
    Texts symbols;
    const size_t distinct = 1 + (*random)() % alphabet.size();
    while (symbols.size() < count)
      symbols.push_back(alphabet[alphabet.size() - 1 - (*random)() % distinct]);
    return symbols;
  }

  Texts Encode(Texts parts) const {
    while (true) {
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto merge =
            std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1]));
        const auto rank = static_cast<size_t>(merge - merges.begin());
        if (rank < best) best = rank, at = i;
      }
      if (best == merges.size()) return parts;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
  }

  Texts alphabet;
  Texts tokens;
  std::vector<std::pair<std::string, std::string>> merges;
  std::set<std::pair<std::string, std::string>> pairs;
};

// Lengths on both sides of the change from scanning to the heap.
void CheckAgainstDefinition(const RandomBpe& oracle, bool byte_level, std::mt19937_64* random) {
  const BpeModel model = oracle.Model(byte_level);
  BpeModel::Scratch scratch;
  for (const size_t length : {1, 2, 3, 8, 47, 48, 49, 50, 120}) {
    const Texts symbols = oracle.RandomSymbols(length, random);
    std::string text;
    for (const std::string& symbol : symbols) text += symbol;
    for (int again = 0; again < 2; ++again) {  // the second time with what the first found out
      std::vector<int32_t> ids;
      model.Encode(text, &scratch, &ids);
      Texts parts;
      for (const int32_t id : ids) parts.push_back(model.tokens()[static_cast<size_t>(id)]);
      ASSERT_EQ(parts, oracle.Encode(symbols));
    }
  }
}

TEST(BpeTest, MergesAsTheDefinitionSays) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 16; ++round)
    CheckAgainstDefinition(RandomBpe(kLetters, false, &random), true, &random);
}

TEST(BpeTest, CuttingAtSpacesChangesNothing) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 32; ++round)
    CheckAgainstDefinition(RandomBpe(kLettersAndSpace, round % 2, &random), false, &random);
}

}  // namespace
}  // namespace skein::engine
