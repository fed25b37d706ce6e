#include "engine/chat_template/parse/token_stream.h"

#include "absl/strings/str_cat.h"
#include "engine/chat_template/limits.h"

namespace skein::engine::chat_template {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kVariableBegin:
    case TokenKind::kBlockBegin:
      return "begin of a tag";
    case TokenKind::kVariableEnd:
    case TokenKind::kBlockEnd:
      return "end of a tag";
    case TokenKind::kText:
      return "text";
    default:
      return absl::StrCat("'", token.text, "'");
  }
}

}  // namespace

Token TokenStream::Next() {
  Token token = current();
  if (!AtEnd()) ++position_;
  return token;
}

bool TokenStream::SkipOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  ++position_;
  return true;
}

bool TokenStream::SkipName(std::string_view name) {
  if (!current().IsName(name)) return false;
  ++position_;
  return true;
}

void TokenStream::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return;
  Fail(absl::StrCat("expected '", std::string(op), "', got ", Describe(current())));
}

void TokenStream::ExpectName(std::string_view name) {
  if (SkipName(name)) return;
  Fail(absl::StrCat("expected '", std::string(name), "', got ", Describe(current())));
}

std::string TokenStream::ExpectIdentifier() {
  if (current().kind == TokenKind::kName) return Next().text;
  Fail(absl::StrCat("expected a name, got ", Describe(current())));
  return "";
}

void TokenStream::Expect(TokenKind kind, std::string_view description) {
  if (current().kind == kind) {
    Next();
  } else {
    Fail(absl::StrCat("expected ", std::string(description), ", got ", Describe(current())));
  }
}

void TokenStream::Fail(std::string_view message) {
  if (error_.empty()) {
    error_ = absl::StrCat("line ", current().line, ": ", std::string(message));
  }
  position_ = tokens_.size() - 1;
}

void TokenStream::FailUnexpected() { Fail(absl::StrCat("unexpected ", Describe(current()))); }

TokenStream::Nesting::Nesting(TokenStream& stream) : stream_(stream) {
  if (++stream_.nesting_ > kTemplateNestingMax) stream_.Fail("nested too deep");
}

}  // namespace skein::engine::chat_template
