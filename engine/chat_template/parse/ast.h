// A parsed template. Nodes own their children; depth is bounded by the parser (limits.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat_template/values/value.h"

namespace skein::engine::chat_template {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class UnaryOperator { kNot, kMinus, kPlus };
enum class BinaryOperator {
  kAnd,
  kOr,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat
};
enum class Comparison { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *args, or null
  ExpressionPtr double_star;  // **kwargs, or null
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left;
  ExpressionPtr right;
};
// a < b <= c
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
// then if condition else otherwise; without `otherwise` (null) it is undefined.
struct Conditional {
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;
};
struct GetAttribute {
  ExpressionPtr object;
  std::string name;
};
struct GetItem {
  ExpressionPtr object;
  ExpressionPtr index;
};
// object[start:stop:step], each of the three or null.
struct Slice {
  ExpressionPtr object;
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
// input is null for the filters of `set` and `filter` blocks.
struct FilterCall {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
  bool negated;
};
struct SequenceLiteral {
  SequenceKind kind;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Expression {
  using Node =
      std::variant<Literal, Name, Unary, Binary, Compare, Conditional, GetAttribute, GetItem, Slice,
                   Call, FilterCall, TestCall, SequenceLiteral, DictLiteral>;
  Node node;
  int line = 1;
  int depth = 1;
};

// The target of an assignment: a name, an attribute of a namespace, or several of these.
struct Target {
  std::string name;
  std::string attribute;       // empty: the name itself
  std::vector<Target> unpack;  // not empty: a tuple
  bool is_tuple = false;
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr default_value;  // or null
};

// A definition by a `macro` or `call` block. The flags: the body mentions these names.
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct TextStatement {
  std::string text;
};
struct OutputStatement {
  ExpressionPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // or null
  Body body;
  Body otherwise;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
// {% set x | filter %}...{% endset %}
struct SetBlockStatement {
  Target target;
  std::vector<ExpressionPtr> filters;  // FilterCalls, innermost first
  Body body;
};
struct FilterBlockStatement {
  std::vector<ExpressionPtr> filters;
  Body body;
};
struct MacroStatement {
  MacroDefinition macro;
};
struct CallBlockStatement {
  ExpressionPtr call;  // a Call
  MacroDefinition caller;
};
// {% generation %} and {% with a = 1 %}: a scope of its own.
struct ScopeStatement {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  using Node = std::variant<TextStatement, OutputStatement, IfStatement, ForStatement, SetStatement,
                            SetBlockStatement, FilterBlockStatement, MacroStatement,
                            CallBlockStatement, ScopeStatement, BreakStatement, ContinueStatement>;
  Node node;
  int line = 1;
};

struct Program {
  Body body;
};

}  // namespace skein::engine::chat_template
