// The parts of a Tokenizer. Private to tokenizer.cc and tokenizer_load.cc.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/bpe/bpe.h"
#include "engine/tokenizer/components/added_tokens.h"
#include "engine/tokenizer/components/config.h"
#include "engine/tokenizer/components/decoder.h"
#include "engine/tokenizer/components/normalizer.h"
#include "engine/tokenizer/components/post_processor.h"
#include "engine/tokenizer/components/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"

namespace skein::engine {

struct Tokenizer::Parts {
  Parts(BpeModel model, Normalizer normalizer, PreTokenizer pre_tokenizer, TokenDecoder decoder)
      : model(std::move(model)),
        normalizer(std::move(normalizer)),
        pre_tokenizer(std::move(pre_tokenizer)),
        decoder(std::move(decoder)) {}

  // Appends the ids of text in which no added token is to be found before it is normalised.
  void EncodeBetween(std::string_view text, bool at_start, EncodeOptions options,
                     BpeModel::Scratch* scratch, std::vector<int32_t>* ids) const;

  void AddTokens(const std::vector<AddedToken>& tokens);
  void SurroundAsConfigured();
  void ForgetUnknownNames();
  void FindLongestToken();

  BpeModel model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  Surroundings surroundings;
  TokenizerConfig config;
  AddedTokenFinder raw_tokens;         // looked for in the text as it comes
  AddedTokenFinder normalized_tokens;  // and after it is normalised
  std::unordered_map<std::string, int32_t> added_ids;
  std::vector<std::string> bytes;  // by id
  std::vector<bool> special;       // by id
  bool takes_spaces = false;       // an added token takes the white space beside it
  size_t token_bytes_max = 0;      // of text that one token stands for; 0: there is no bound
};

}  // namespace skein::engine
