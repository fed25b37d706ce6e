// Walks a parsed template and writes its output.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template/interpreter/scope.h"
#include "engine/chat_template/parse/ast.h"
#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

class Interpreter {
 public:
  // context: a dict, the outermost variables. All three outlive the interpreter.
  Interpreter(Runtime& runtime, const Program& program, const Value& context)
      : runtime_(runtime), program_(program), context_(context) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Whole or, after a failure of the runtime, meaningless.
  std::string Run();

  // For macros, which are values: renders a macro's body in a scope inside `definition_scope`.
  Value CallMacro(const MacroDefinition& macro, Scope* definition_scope,
                  const Arguments& arguments);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class ScopeGuard;

  Value Evaluate(const Expression& e);
  Value EvaluateNode(const Literal& node);
  Value EvaluateNode(const Name& node);
  Value EvaluateNode(const Unary& node);
  Value EvaluateNode(const Binary& node);
  Value EvaluateNode(const Compare& node);
  Value EvaluateNode(const Conditional& node);
  Value EvaluateNode(const GetAttribute& node);
  Value EvaluateNode(const GetItem& node);
  Value EvaluateNode(const Slice& node);
  Value EvaluateNode(const Call& node);
  Value EvaluateNode(const FilterCall& node);
  Value EvaluateNode(const TestCall& node);
  Value EvaluateNode(const SequenceLiteral& node);
  Value EvaluateNode(const DictLiteral& node);
  Value EvaluateOrNone(const ExpressionPtr& e);
  Arguments EvaluateArguments(const CallArguments& arguments);
  void AppendStars(const CallArguments& source, Arguments* arguments);
  Value CallValue(const Value& callee, const Arguments& arguments);
  Value CallWith(const Call& node, const Value* caller);

  Flow Execute(const Body& body);
  Flow ExecuteOne(const Statement& statement);
  Flow ExecuteNode(const TextStatement& node);
  Flow ExecuteNode(const OutputStatement& node);
  Flow ExecuteNode(const IfStatement& node);
  Flow ExecuteNode(const ForStatement& node);
  Flow ExecuteNode(const SetStatement& node);
  Flow ExecuteNode(const SetBlockStatement& node);
  Flow ExecuteNode(const FilterBlockStatement& node);
  Flow ExecuteNode(const MacroStatement& node);
  Flow ExecuteNode(const CallBlockStatement& node);
  Flow ExecuteNode(const ScopeStatement& node);
  Flow ExecuteNode(const BreakStatement&) { return Flow::kBreak; }
  Flow ExecuteNode(const ContinueStatement&) { return Flow::kContinue; }

  std::vector<Value> LoopItems(const ForStatement& node);
  void Assign(const Target& target, Value value);
  void AssignAttribute(const Target& target, Value value);
  bool BindParameters(const MacroDefinition& macro, const Arguments& arguments);
  void BindRest(const MacroDefinition& macro, const Arguments& arguments);
  Value MakeMacro(const MacroDefinition& macro);
  void Write(std::string_view text);
  // The body's output instead of writing it.
  std::string Capture(const Body& body);
  Value ApplyFilters(const std::vector<ExpressionPtr>& filters, Value value);

  Runtime& runtime_;
  const Program& program_;
  const Value& context_;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  std::vector<std::unique_ptr<Scope>> captured_;
};

}  // namespace skein::engine::chat_template
