// Template source to tokens, with Jinja's white-space control applied (trim_blocks and
// lstrip_blocks on): text tokens hold exactly what is printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/chat_template/values/value.h"

namespace skein::engine::chat_template {

enum class TokenKind {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // the text, name, operator, or the string with its escapes resolved
  Value number;      // of kNumber
  int line = 1;

  bool Is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool IsOperator(std::string_view t) const { return Is(TokenKind::kOperator, t); }
  bool IsName(std::string_view t) const { return Is(TokenKind::kName, t); }
};

// Ends with one kEnd token. Errors: INVALID_ARGUMENT "line N: ...".
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace skein::engine::chat_template
