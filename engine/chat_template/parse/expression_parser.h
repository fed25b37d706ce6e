// Expressions, by recursive descent in Jinja's order of precedence.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "engine/chat_template/parse/ast.h"
#include "engine/chat_template/parse/token_stream.h"

namespace skein::engine::chat_template {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // Never null, also after a failure.
  ExpressionPtr Parse(bool with_conditional = true);
  // One expression, or a tuple of several between commas that ends where the tag does.
  ExpressionPtr ParseTuple(bool with_conditional = true, bool parenthesized = false);
  // "| name(...) | name" as a list of FilterCalls without input; the first bar is optional when
  // `inline_start` is set.
  std::vector<ExpressionPtr> ParseFilters(bool inline_start);

  // The macro whose body is being parsed, if any: its uses_* flags are set as names are met.
  MacroDefinition* macro = nullptr;

 private:
  ExpressionPtr Make(Expression::Node node, int line, std::initializer_list<int> depths);
  ExpressionPtr MakeBinary(BinaryOperator op, ExpressionPtr left, ExpressionPtr right, int line);
  ExpressionPtr MakeLiteral(Value value, int line);

  ExpressionPtr ParseConditional();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseAdditive();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseMultiplicative();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filter);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseName();
  ExpressionPtr ParseString();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr node);
  ExpressionPtr ParseFilterExpression(ExpressionPtr node);
  ExpressionPtr ParseAttribute(ExpressionPtr node);
  ExpressionPtr ParseSubscript(ExpressionPtr node);
  ExpressionPtr ParseCall(ExpressionPtr node);
  ExpressionPtr ParseFilter(ExpressionPtr input);
  ExpressionPtr ParseTest(ExpressionPtr input);
  bool TakeComparison(Comparison* op);
  bool StartsTestArgument() const;
  bool AtTupleEnd() const;
  CallArguments ParseArguments();
  void ParseArgument(CallArguments* arguments);
  std::string ParseDottedName();

  TokenStream& stream_;
};

}  // namespace skein::engine::chat_template
