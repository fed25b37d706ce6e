#include "engine/chat_template/parse/expression_parser.h"

#include <algorithm>
#include <utility>

#include "engine/chat_template/limits.h"

namespace skein::engine::chat_template {
namespace {

int DepthOf(const ExpressionPtr& e) { return e == nullptr ? 0 : e->depth; }

int DepthOf(const CallArguments& a) {
  int depth = std::max(DepthOf(a.star), DepthOf(a.double_star));
  for (const auto& e : a.positional) depth = std::max(depth, DepthOf(e));
  for (const auto& [name, e] : a.named) depth = std::max(depth, DepthOf(e));
  return depth;
}

int DepthOf(const std::vector<ExpressionPtr>& items) {
  int depth = 0;
  for (const auto& e : items) depth = std::max(depth, DepthOf(e));
  return depth;
}

}  // namespace

ExpressionPtr ExpressionParser::Make(Expression::Node node, int line,
                                     std::initializer_list<int> depths) {
  auto e = std::make_unique<Expression>();
  e->node = std::move(node);
  e->line = line;
  e->depth = 1 + (depths.size() == 0 ? 0 : std::max(depths));
  if (e->depth > kExpressionDepthMax) stream_.Fail("an expression is nested too deep");
  return e;
}

ExpressionPtr ExpressionParser::MakeBinary(BinaryOperator op, ExpressionPtr left,
                                           ExpressionPtr right, int line) {
  const int l = DepthOf(left);
  const int r = DepthOf(right);
  return Make(Binary{op, std::move(left), std::move(right)}, line, {l, r});
}

ExpressionPtr ExpressionParser::MakeLiteral(Value value, int line) {
  return Make(Literal{std::move(value)}, line, {});
}

ExpressionPtr ExpressionParser::Parse(bool with_conditional) {
  TokenStream::Nesting nesting(stream_);
  return with_conditional ? ParseConditional() : ParseOr();
}

ExpressionPtr ExpressionParser::ParseConditional() {
  ExpressionPtr then = ParseOr();
  while (stream_.current().IsName("if")) {
    const int line = stream_.Next().line;
    ExpressionPtr condition = ParseOr();
    ExpressionPtr otherwise = stream_.SkipName("else") ? Parse() : nullptr;
    const int t = DepthOf(then);
    const int c = DepthOf(condition);
    const int o = DepthOf(otherwise);
    then = Make(Conditional{std::move(condition), std::move(then), std::move(otherwise)}, line,
                {t, c, o});
  }
  return then;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (stream_.current().IsName("or")) {
    const int line = stream_.Next().line;
    left = MakeBinary(BinaryOperator::kOr, std::move(left), ParseAnd(), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (stream_.current().IsName("and")) {
    const int line = stream_.Next().line;
    left = MakeBinary(BinaryOperator::kAnd, std::move(left), ParseNot(), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!stream_.current().IsName("not")) return ParseCompare();
  TokenStream::Nesting nesting(stream_);
  const int line = stream_.Next().line;
  ExpressionPtr operand = ParseNot();
  const int depth = DepthOf(operand);
  return Make(Unary{UnaryOperator::kNot, std::move(operand)}, line, {depth});
}

bool ExpressionParser::TakeComparison(Comparison* op) {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEq}, {"!=", Comparison::kNe}, {"<", Comparison::kLt},
      {"<=", Comparison::kLe}, {">", Comparison::kGt},  {">=", Comparison::kGe}};
  for (const auto& [text, comparison] : kOperators) {
    if (stream_.SkipOperator(text)) {
      *op = comparison;
      return true;
    }
  }
  if (stream_.SkipName("in")) {
    *op = Comparison::kIn;
    return true;
  }
  if (!stream_.current().IsName("not") || !stream_.ahead().IsName("in")) return false;
  stream_.Next();
  stream_.Next();
  *op = Comparison::kNotIn;
  return true;
}

ExpressionPtr ExpressionParser::ParseCompare() {
  const int line = stream_.current().line;
  ExpressionPtr first = ParseAdditive();
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  int depth = DepthOf(first);
  for (Comparison op; TakeComparison(&op);) {
    rest.emplace_back(op, ParseAdditive());
    depth = std::max(depth, DepthOf(rest.back().second));
  }
  if (rest.empty()) return first;
  return Make(Compare{std::move(first), std::move(rest)}, line, {depth});
}

ExpressionPtr ExpressionParser::ParseAdditive() {
  ExpressionPtr left = ParseConcat();
  while (stream_.current().IsOperator("+") || stream_.current().IsOperator("-")) {
    const Token op = stream_.Next();
    left = MakeBinary(op.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract,
                      std::move(left), ParseConcat(), op.line);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcat() {
  ExpressionPtr left = ParseMultiplicative();
  while (stream_.current().IsOperator("~")) {
    const int line = stream_.Next().line;
    left = MakeBinary(BinaryOperator::kConcat, std::move(left), ParseMultiplicative(), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseMultiplicative() {
  static constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  ExpressionPtr left = ParsePower();
  while (true) {
    const Token& token = stream_.current();
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& o) { return token.IsOperator(o.first); });
    if (op == std::end(kOperators)) return left;
    const int line = stream_.Next().line;
    left = MakeBinary(op->second, std::move(left), ParsePower(), line);
  }
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary(true);
  while (stream_.current().IsOperator("**")) {
    const int line = stream_.Next().line;
    left = MakeBinary(BinaryOperator::kPower, std::move(left), ParseUnary(true), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filter) {
  ExpressionPtr node;
  if (stream_.current().IsOperator("-") || stream_.current().IsOperator("+")) {
    TokenStream::Nesting nesting(stream_);
    const Token op = stream_.Next();
    ExpressionPtr operand = ParseUnary(false);
    const int depth = DepthOf(operand);
    node = Make(
        Unary{op.text == "-" ? UnaryOperator::kMinus : UnaryOperator::kPlus, std::move(operand)},
        op.line, {depth});
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterExpression(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  const Token& token = stream_.current();
  const int line = token.line;
  if (token.kind == TokenKind::kName) return ParseName();
  if (token.kind == TokenKind::kString) return ParseString();
  if (token.kind == TokenKind::kNumber) return MakeLiteral(stream_.Next().number, line);
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  if (stream_.SkipOperator("(")) {
    TokenStream::Nesting nesting(stream_);
    ExpressionPtr inner = ParseTuple(true, true);
    stream_.ExpectOperator(")");
    return inner;
  }
  stream_.FailUnexpected();
  return MakeLiteral(Value(), line);
}

ExpressionPtr ExpressionParser::ParseName() {
  const Token token = stream_.Next();
  if (token.text == "true" || token.text == "True") return MakeLiteral(true, token.line);
  if (token.text == "false" || token.text == "False") return MakeLiteral(false, token.line);
  if (token.text == "none" || token.text == "None") return MakeLiteral(NoneType{}, token.line);
  if (macro != nullptr) {
    macro->uses_varargs |= token.text == "varargs";
    macro->uses_kwargs |= token.text == "kwargs";
    macro->uses_caller |= token.text == "caller";
  }
  return Make(Name{token.text}, token.line, {});
}

ExpressionPtr ExpressionParser::ParseString() {
  const int line = stream_.current().line;
  std::string text;
  while (stream_.current().kind == TokenKind::kString) text += stream_.Next().text;
  return MakeLiteral(std::move(text), line);
}

ExpressionPtr ExpressionParser::ParseList() {
  TokenStream::Nesting nesting(stream_);
  const int line = stream_.Next().line;
  std::vector<ExpressionPtr> items;
  while (!stream_.AtEnd() && !stream_.current().IsOperator("]")) {
    if (!items.empty()) stream_.ExpectOperator(",");
    if (stream_.current().IsOperator("]")) break;
    items.push_back(Parse());
  }
  stream_.ExpectOperator("]");
  const int depth = DepthOf(items);
  return Make(SequenceLiteral{SequenceKind::kList, std::move(items)}, line, {depth});
}

ExpressionPtr ExpressionParser::ParseDict() {
  TokenStream::Nesting nesting(stream_);
  const int line = stream_.Next().line;
  DictLiteral dict;
  int depth = 0;
  while (!stream_.AtEnd() && !stream_.current().IsOperator("}")) {
    if (!dict.entries.empty()) stream_.ExpectOperator(",");
    if (stream_.current().IsOperator("}")) break;
    ExpressionPtr key = Parse();
    stream_.ExpectOperator(":");
    ExpressionPtr value = Parse();
    depth = std::max({depth, DepthOf(key), DepthOf(value)});
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  stream_.ExpectOperator("}");
  return Make(std::move(dict), line, {depth});
}

bool ExpressionParser::AtTupleEnd() const {
  const Token& token = stream_.current();
  return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
         token.kind == TokenKind::kEnd || token.IsOperator(")") || token.IsName("recursive");
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_conditional, bool parenthesized) {
  const int line = stream_.current().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) stream_.ExpectOperator(",");
    if (AtTupleEnd()) break;
    items.push_back(Parse(with_conditional));
    if (!stream_.current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (items.empty() && !parenthesized) stream_.FailUnexpected();
  const int depth = DepthOf(items);
  return Make(SequenceLiteral{SequenceKind::kTuple, std::move(items)}, line, {depth});
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (stream_.current().IsOperator(".")) {
      node = ParseAttribute(std::move(node));
    } else if (stream_.current().IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (stream_.current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilterExpression(ExpressionPtr node) {
  while (true) {
    if (stream_.SkipOperator("|")) {
      node = ParseFilter(std::move(node));
    } else if (stream_.SkipName("is")) {
      node = ParseTest(std::move(node));
    } else if (stream_.current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseAttribute(ExpressionPtr node) {
  const int line = stream_.Next().line;
  const int depth = DepthOf(node);
  const Token token = stream_.Next();
  if (token.kind == TokenKind::kName) {
    return Make(GetAttribute{std::move(node), token.text}, line, {depth});
  }
  if (token.kind != TokenKind::kNumber || !token.number.IsInt()) {
    stream_.Fail("expected name or number");
  }
  return Make(GetItem{std::move(node), MakeLiteral(token.number, line)}, line, {depth});
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr node) {
  TokenStream::Nesting nesting(stream_);
  const int line = stream_.Next().line;
  const auto at_end = [&] {
    return stream_.current().IsOperator("]") || stream_.current().IsOperator(":");
  };
  ExpressionPtr parts[3];
  int colons = 0;
  if (!at_end()) parts[0] = ParseTuple();
  while (colons < 2 && stream_.SkipOperator(":")) {
    ++colons;
    if (!at_end()) parts[colons] = Parse();
  }
  stream_.ExpectOperator("]");
  const int depth =
      std::max({DepthOf(node), DepthOf(parts[0]), DepthOf(parts[1]), DepthOf(parts[2])});
  if (colons == 0) {
    if (parts[0] == nullptr) stream_.FailUnexpected();
    return Make(GetItem{std::move(node), std::move(parts[0])}, line, {depth});
  }
  return Make(Slice{std::move(node), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
              line, {depth});
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr node) {
  const int line = stream_.current().line;
  CallArguments arguments = ParseArguments();
  const int depth = std::max(DepthOf(node), DepthOf(arguments));
  return Make(Call{std::move(node), std::move(arguments)}, line, {depth});
}

CallArguments ExpressionParser::ParseArguments() {
  TokenStream::Nesting nesting(stream_);
  CallArguments arguments;
  stream_.ExpectOperator("(");
  bool first = true;
  while (!stream_.AtEnd() && !stream_.current().IsOperator(")")) {
    if (!first) stream_.ExpectOperator(",");
    first = false;
    if (stream_.current().IsOperator(")")) break;
    ParseArgument(&arguments);
  }
  stream_.ExpectOperator(")");
  return arguments;
}

void ExpressionParser::ParseArgument(CallArguments* arguments) {
  const char* const kBadOrder = "invalid syntax for function call expression";
  if (stream_.SkipOperator("**")) {
    if (arguments->double_star != nullptr) stream_.Fail(kBadOrder);
    arguments->double_star = Parse();
  } else if (arguments->double_star != nullptr) {
    stream_.Fail(kBadOrder);
  } else if (stream_.SkipOperator("*")) {
    if (arguments->star != nullptr) stream_.Fail(kBadOrder);
    arguments->star = Parse();
  } else if (stream_.current().kind == TokenKind::kName && stream_.ahead().IsOperator("=")) {
    std::string name = stream_.Next().text;
    stream_.Next();
    arguments->named.emplace_back(std::move(name), Parse());
  } else {
    if (arguments->star != nullptr || !arguments->named.empty()) stream_.Fail(kBadOrder);
    arguments->positional.push_back(Parse());
  }
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = stream_.ExpectIdentifier();
  while (stream_.SkipOperator(".")) name += "." + stream_.ExpectIdentifier();
  return name;
}

ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr input) {
  const int line = stream_.current().line;
  std::string name = ParseDottedName();
  CallArguments arguments;
  if (stream_.current().IsOperator("(")) arguments = ParseArguments();
  const int depth = std::max(DepthOf(input), DepthOf(arguments));
  return Make(FilterCall{std::move(input), std::move(name), std::move(arguments)}, line, {depth});
}

std::vector<ExpressionPtr> ExpressionParser::ParseFilters(bool inline_start) {
  std::vector<ExpressionPtr> filters;
  if (inline_start) filters.push_back(ParseFilter(nullptr));
  while (stream_.SkipOperator("|")) filters.push_back(ParseFilter(nullptr));
  return filters;
}

bool ExpressionParser::StartsTestArgument() const {
  const Token& t = stream_.current();
  if (t.kind == TokenKind::kName) return t.text != "else" && t.text != "or" && t.text != "and";
  return t.kind == TokenKind::kString || t.kind == TokenKind::kNumber || t.IsOperator("[") ||
         t.IsOperator("{");
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr input) {
  const int line = stream_.current().line;
  const bool negated = stream_.SkipName("not");
  std::string name = ParseDottedName();
  CallArguments arguments;
  if (stream_.current().IsOperator("(")) {
    arguments = ParseArguments();
  } else if (StartsTestArgument()) {
    if (stream_.current().IsName("is")) stream_.Fail("You cannot chain multiple tests with is");
    arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  const int depth = std::max(DepthOf(input), DepthOf(arguments));
  return Make(TestCall{std::move(input), std::move(name), std::move(arguments), negated}, line,
              {depth});
}

}  // namespace skein::engine::chat_template
