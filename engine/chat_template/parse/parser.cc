#include "engine/chat_template/parse/parser.h"

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/limits.h"
#include "engine/chat_template/parse/expression_parser.h"
#include "engine/chat_template/parse/lexer.h"
#include "engine/chat_template/parse/token_stream.h"

namespace skein::engine::chat_template {
namespace {

using EndNames = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(stream_) {}

  absl::StatusOr<std::shared_ptr<const Program>> Run() {
    auto program = std::make_shared<Program>();
    program->body = ParseBody({});
    if (stream_.failed()) return absl::InvalidArgumentError(stream_.error());
    return program;
  }

 private:
  // Statements up to "{% name" with one of `ends`, of which the name is the current token then.
  Body ParseBody(EndNames ends) {
    TokenStream::Nesting nesting(stream_);
    Body body;
    while (!stream_.AtEnd()) {
      const Token& token = stream_.current();
      if (token.kind == TokenKind::kBlockBegin) {
        stream_.Next();
        if (IsOneOf(stream_.current(), ends)) return body;
      }
      ParseStatement(&body);
    }
    if (ends.size() > 0) {
      stream_.Fail(absl::StrCat("unexpected end of template, expected '",
                                std::string(*(ends.end() - 1)), "'"));
    }
    return body;
  }

  static bool IsOneOf(const Token& token, EndNames names) {
    for (std::string_view name : names) {
      if (token.IsName(name)) return true;
    }
    return false;
  }

  // After a tag's head: its end, the body, and the end tag whose name is given.
  Body ParseBlock(std::string_view end) {
    Body body = OpenBlock({end});
    stream_.ExpectName(end);
    CloseTag();
    return body;
  }

  Body OpenBlock(EndNames ends) {
    stream_.SkipOperator(":");
    CloseTag();
    return ParseBody(ends);
  }

  void CloseTag() { stream_.Expect(TokenKind::kBlockEnd, "end of statement block"); }

  void ParseStatement(Body* body) {
    const Token token = stream_.Next();
    Statement statement;
    statement.line = token.line;
    if (token.kind == TokenKind::kText) {
      statement.node = TextStatement{token.text};
    } else if (token.kind == TokenKind::kVariableBegin) {
      statement.node = OutputStatement{expressions_.ParseTuple()};
      stream_.Expect(TokenKind::kVariableEnd, "end of print statement");
    } else {
      statement.node = ParseBlockStatement(token);
    }
    body->push_back(std::move(statement));
  }

  Statement::Node ParseBlockStatement(const Token& name) {
    if (name.IsName("if")) return ParseIf();
    if (name.IsName("for")) return ParseFor();
    if (name.IsName("set")) return ParseSet();
    if (name.IsName("macro")) return ParseMacro();
    if (name.IsName("call")) return ParseCallBlock();
    if (name.IsName("filter")) return ParseFilterBlock();
    if (name.IsName("with")) return ParseWith();
    if (name.IsName("generation")) return ScopeStatement{{}, ParseBlock("endgeneration")};
    if (name.IsName("break") || name.IsName("continue")) return ParseJump(name);
    stream_.Fail(absl::StrCat("unknown tag '", name.text, "'"));
    return TextStatement{};
  }

  Statement::Node ParseJump(const Token& name) {
    if (loops_ == 0) stream_.Fail(absl::StrCat("'", name.text, "' outside of a loop"));
    CloseTag();
    if (name.text == "break") return BreakStatement{};
    return ContinueStatement{};
  }

  Statement::Node ParseIf() {
    IfStatement node;
    while (!stream_.failed()) {
      ExpressionPtr condition = expressions_.ParseTuple(false);
      node.branches.emplace_back(std::move(condition), OpenBlock({"elif", "else", "endif"}));
      if (stream_.SkipName("elif")) continue;
      if (stream_.SkipName("else")) {
        node.otherwise = ParseBlock("endif");
      } else {
        stream_.ExpectName("endif");
        CloseTag();
      }
      break;
    }
    return node;
  }

  Statement::Node ParseFor() {
    ForStatement node;
    node.target = ParseTarget(false);
    stream_.ExpectName("in");
    node.iterable = expressions_.ParseTuple(false);
    if (stream_.SkipName("if")) node.condition = expressions_.Parse();
    if (stream_.current().IsName("recursive")) stream_.Fail("recursive loops are not supported");
    ++loops_;
    node.body = OpenBlock({"else", "endfor"});
    --loops_;
    if (stream_.SkipName("else")) {
      node.otherwise = ParseBlock("endfor");
    } else {
      stream_.ExpectName("endfor");
      CloseTag();
    }
    return node;
  }

  Statement::Node ParseSet() {
    Target target = ParseTarget(true);
    if (stream_.SkipOperator("=")) {
      SetStatement node{std::move(target), expressions_.ParseTuple()};
      CloseTag();
      return node;
    }
    SetBlockStatement node;
    node.target = std::move(target);
    node.filters = expressions_.ParseFilters(false);
    node.body = ParseBlock("endset");
    return node;
  }

  Statement::Node ParseFilterBlock() {
    FilterBlockStatement node;
    node.filters = expressions_.ParseFilters(true);
    node.body = ParseBlock("endfilter");
    return node;
  }

  Statement::Node ParseWith() {
    ScopeStatement node;
    while (!stream_.AtEnd() && stream_.current().kind != TokenKind::kBlockEnd) {
      if (!node.assignments.empty()) stream_.ExpectOperator(",");
      Target target = ParseTarget(false);
      stream_.ExpectOperator("=");
      node.assignments.emplace_back(std::move(target), expressions_.Parse());
    }
    node.body = ParseBlock("endwith");
    return node;
  }

  Statement::Node ParseMacro() {
    MacroStatement node;
    node.macro.name = stream_.ExpectIdentifier();
    ParseMacroParts(&node.macro, "endmacro", true);
    return node;
  }

  Statement::Node ParseCallBlock() {
    CallBlockStatement node;
    node.caller.name = "caller";
    if (stream_.current().IsOperator("(")) ParseParameters(&node.caller);
    node.call = expressions_.Parse();
    if (!std::holds_alternative<Call>(node.call->node)) stream_.Fail("expected call");
    ParseMacroParts(&node.caller, "endcall", false);
    return node;
  }

  // A macro's body is parsed apart from what is around it: no loop to break out of.
  void ParseMacroParts(MacroDefinition* macro, std::string_view end, bool with_parameters) {
    MacroDefinition* const outer_macro = std::exchange(expressions_.macro, macro);
    const int outer_loops = std::exchange(loops_, 0);
    if (with_parameters) ParseParameters(macro);
    macro->body = ParseBlock(end);
    loops_ = outer_loops;
    expressions_.macro = outer_macro;
  }

  void ParseParameters(MacroDefinition* macro) {
    stream_.ExpectOperator("(");
    while (!stream_.AtEnd() && !stream_.current().IsOperator(")")) {
      if (!macro->parameters.empty()) stream_.ExpectOperator(",");
      Parameter parameter;
      parameter.name = stream_.ExpectIdentifier();
      if (stream_.SkipOperator("=")) {
        parameter.default_value = expressions_.Parse();
      } else if (!macro->parameters.empty() && macro->parameters.back().default_value) {
        stream_.Fail("non-default argument follows default argument");
      }
      macro->parameters.push_back(std::move(parameter));
    }
    stream_.ExpectOperator(")");
  }

  // A name, name.attribute (where `with_attribute`), or a tuple of targets.
  Target ParseTarget(bool with_attribute) {
    if (with_attribute && stream_.ahead().IsOperator(".")) {
      Target target;
      target.name = stream_.ExpectIdentifier();
      stream_.Next();
      target.attribute = stream_.ExpectIdentifier();
      return target;
    }
    Target first = ParseSimpleTarget();
    if (!stream_.current().IsOperator(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.unpack.push_back(std::move(first));
    while (stream_.SkipOperator(",") && !EndsTarget()) tuple.unpack.push_back(ParseSimpleTarget());
    return tuple;
  }

  bool EndsTarget() const {
    const Token& t = stream_.current();
    return t.IsName("in") || t.IsOperator("=") || t.IsOperator(")") ||
           t.kind == TokenKind::kBlockEnd;
  }

  Target ParseSimpleTarget() {
    if (!stream_.current().IsOperator("(")) {
      Target target;
      target.name = stream_.ExpectIdentifier();
      static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                        "True", "False", "None"};
      for (std::string_view constant : kConstants) {
        if (target.name == constant) stream_.Fail("can't assign to a constant");
      }
      return target;
    }
    TokenStream::Nesting nesting(stream_);
    stream_.Next();
    Target inner = ParseTarget(false);
    stream_.ExpectOperator(")");
    return inner;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> ParseProgram(std::string_view source) {
  if (source.size() > kTemplateBytesMax) {
    return absl::InvalidArgumentError("line 1: the template is too large");
  }
  auto tokens = Tokenize(source);
  if (!tokens.ok()) return tokens.status();
  return Parser(*std::move(tokens)).Run();
}

}  // namespace skein::engine::chat_template
