// The `decoder` of tokenizer.json, taken apart into what can be done to each token alone, at load,
// and what is done to the joined text. ByteLevel, ByteFallback, Replace, Strip, Metaspace, Fuse,
// Sequence.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/components/pattern.h"
#include "engine/tokenizer/text/json_reader.h"
#include "engine/tokenizer/text/text_assembler.h"

namespace skein::engine {

class TokenDecoder {
 public:
  // `json` may not be null: without a decoder there is no telling what the text of a vocabulary
  // entry is.
  static absl::StatusOr<TokenDecoder> FromJson(const Json* json);

  // The bytes of the token spelled `token` in tokenizer.json. An added token is its own text to
  // ByteLevel.
  std::string BytesOf(std::string_view token, bool is_added) const;

  const TextRules& text_rules() const { return text_rules_; }

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    std::string content;
    size_t start_max, stop_max;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Replace, Strip>;

  absl::Status Add(const Component& component);
  absl::Status AddReplace(JsonReader* reader);
  absl::Status AddStrip(JsonReader* reader);
  absl::Status AddMetaspace(JsonReader* reader);
  absl::Status StripText(const Strip& strip, const std::string& path);

  std::vector<Step> steps_;
  TextRules text_rules_;
  bool fused_ = false;  // while reading: the tokens are joined from here on
};

}  // namespace skein::engine
