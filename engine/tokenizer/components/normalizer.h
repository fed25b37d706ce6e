// The `normalizer` of tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip,
// StripAccents, Sequence.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/components/pattern.h"
#include "engine/tokenizer/text/json_reader.h"

namespace skein::engine {

class Normalizer {
 public:
  // `json` may be nullptr or null: nothing is changed then.
  static absl::StatusOr<Normalizer> FromJson(const Json* json);

  bool empty() const { return steps_.empty(); }
  // Each ASCII character of a text leaves at least one byte of its own in the result.
  bool KeepsAscii() const;

  // REQUIRES: text is valid UTF-8; so is the result.
  std::string Apply(std::string_view text) const;

 private:
  enum class Form { kNfc, kNfd, kNfkc, kNfkd };
  struct Lowercase {};
  struct StripAccents {};
  struct Prepend {
    std::string text;
  };
  struct Strip {
    bool left, right;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  using Step = std::variant<Form, Lowercase, StripAccents, Prepend, Strip, Replace>;

  static absl::StatusOr<Step> ParseStep(const Component& component);
  static std::string Run(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace skein::engine
