// The part of tokenizer_config.json that Skein reads, besides added_tokens_decoder.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/tokenizer/text/json_reader.h"

namespace skein::engine {

struct TokenizerConfig {
  std::optional<std::string> bos, eos, unk, pad;
  std::optional<bool> add_bos, add_eos;  // absent where the file does not say
  std::optional<std::string> chat_template;
};

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const Json& json);

}  // namespace skein::engine
