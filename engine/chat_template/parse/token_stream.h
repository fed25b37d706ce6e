// The parsers' view of the tokens. The first failure is kept and moves the stream to its end, so
// that every loop over tokens ends by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template/parse/lexer.h"

namespace skein::engine::chat_template {

class TokenStream {
 public:
  // REQUIRES: tokens end with kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const {
    return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_];
  }
  bool AtEnd() const { return current().kind == TokenKind::kEnd; }

  Token Next();
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  void ExpectName(std::string_view name);
  // The text of a name that is expected here; "" when it is not there.
  std::string ExpectIdentifier();
  void Expect(TokenKind kind, std::string_view description);

  void Fail(std::string_view message);
  void FailUnexpected();
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

  // Blocks and brackets around the current token; one more fails past kTemplateNestingMax.
  class Nesting {
   public:
    explicit Nesting(TokenStream& stream);
    ~Nesting() { --stream_.nesting_; }

   private:
    TokenStream& stream_;
  };

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
  std::string error_;
};

}  // namespace skein::engine::chat_template
