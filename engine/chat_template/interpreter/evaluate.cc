// Interpreter: expressions.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/filters/filters.h"
#include "engine/chat_template/filters/predicates.h"
#include "engine/chat_template/interpreter/globals.h"
#include "engine/chat_template/interpreter/interpreter.h"
#include "engine/chat_template/methods/access.h"
#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {

Value Interpreter::Evaluate(const Expression& e) {
  const Runtime::Frame frame(runtime_);
  if (!runtime_.Charge(1)) return Value();
  runtime_.set_line(e.line);
  return std::visit([this](const auto& node) { return EvaluateNode(node); }, e.node);
}

Value Interpreter::EvaluateOrNone(const ExpressionPtr& e) {
  return e == nullptr ? Value(NoneType{}) : Evaluate(*e);
}

Value Interpreter::EvaluateNode(const Literal& node) { return node.value; }

Value Interpreter::EvaluateNode(const Name& node) {
  if (const Value* found = scope_->Find(node.name)) return *found;
  if (const Value* found = context_.dict().Find(std::string_view(node.name))) return *found;
  Value global;
  if (FindGlobal(node.name, &global)) return global;
  return Value::Undefined(absl::StrCat("'", node.name, "' is undefined"));
}

Value Interpreter::EvaluateNode(const Unary& node) {
  return ApplyUnary(runtime_, node.op, Evaluate(*node.operand));
}

Value Interpreter::EvaluateNode(const Binary& node) {
  Value left = Evaluate(*node.left);
  if (node.op == BinaryOperator::kAnd) return left.Truthy() ? Evaluate(*node.right) : left;
  if (node.op == BinaryOperator::kOr) return left.Truthy() ? left : Evaluate(*node.right);
  const Value right = Evaluate(*node.right);
  return runtime_.failed() ? Value() : ApplyBinary(runtime_, node.op, left, right);
}

Value Interpreter::EvaluateNode(const Compare& node) {
  Value left = Evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = Evaluate(*operand);
    if (runtime_.failed() || !Compares(runtime_, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::EvaluateNode(const Conditional& node) {
  if (Evaluate(*node.condition).Truthy()) return Evaluate(*node.then);
  if (node.otherwise != nullptr) return Evaluate(*node.otherwise);
  return Value::Undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::EvaluateNode(const GetAttribute& node) {
  const Value object = Evaluate(*node.object);
  return runtime_.failed() ? Value() : GetAttributeOf(runtime_, object, node.name);
}

Value Interpreter::EvaluateNode(const GetItem& node) {
  const Value object = Evaluate(*node.object);
  const Value index = Evaluate(*node.index);
  return runtime_.failed() ? Value() : GetItemOf(runtime_, object, index);
}

Value Interpreter::EvaluateNode(const Slice& node) {
  const Value object = Evaluate(*node.object);
  const Value start = EvaluateOrNone(node.start);
  const Value stop = EvaluateOrNone(node.stop);
  const Value step = EvaluateOrNone(node.step);
  return runtime_.failed() ? Value() : SliceOf(runtime_, object, start, stop, step);
}

Value Interpreter::EvaluateNode(const Call& node) { return CallWith(node, nullptr); }

// caller: what a {% call %} block passes besides, or nullptr.
Value Interpreter::CallWith(const Call& node, const Value* caller) {
  const int line = runtime_.line();
  const auto* const attribute = std::get_if<GetAttribute>(&node.callee->node);
  // object.method(...) without making a value of the method in between.
  Value receiver;
  Value callee;
  Method method = nullptr;
  if (attribute != nullptr) {
    receiver = Evaluate(*attribute->object);
    if (receiver.IsUndefined()) return runtime_.FailUndefined(receiver);
    method = FindMethod(receiver, attribute->name);
    if (method == nullptr) callee = GetAttributeOf(runtime_, receiver, attribute->name);
  } else {
    callee = Evaluate(*node.callee);
  }
  Arguments arguments = EvaluateArguments(node.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  runtime_.set_line(line);
  if (runtime_.failed()) return Value();
  return method != nullptr ? method(runtime_, receiver, arguments) : CallValue(callee, arguments);
}

Value Interpreter::CallValue(const Value& callee, const Arguments& arguments) {
  if (callee.IsUndefined()) return runtime_.FailUndefined(callee);
  if (!callee.IsObject() || !callee.object().IsCallable()) {
    return runtime_.Fail(
        absl::StrCat("'", std::string(callee.TypeName()), "' object is not callable"));
  }
  return callee.object().Call(runtime_, arguments);
}

Arguments Interpreter::EvaluateArguments(const CallArguments& source) {
  Arguments arguments;
  for (const auto& e : source.positional) arguments.positional.push_back(Evaluate(*e));
  for (const auto& [name, e] : source.named) arguments.named.emplace_back(name, Evaluate(*e));
  if (source.star != nullptr || source.double_star != nullptr) AppendStars(source, &arguments);
  return arguments;
}

void Interpreter::AppendStars(const CallArguments& source, Arguments* arguments) {
  if (source.star != nullptr) {
    const Value star = Evaluate(*source.star);
    for (Value& item : Iterate(runtime_, star)) arguments->positional.push_back(std::move(item));
  }
  if (source.double_star == nullptr) return;
  const Value mapping = Evaluate(*source.double_star);
  if (!mapping.IsDict()) {
    runtime_.Fail("argument after ** must be a mapping");
    return;
  }
  if (!runtime_.Charge(mapping.dict().size())) return;
  for (const auto& [key, value] : mapping.dict().entries()) {
    if (!key.IsString()) {
      runtime_.Fail("keywords must be strings");
      return;
    }
    arguments->named.emplace_back(std::string(key.text()), value);
  }
}

Value Interpreter::EvaluateNode(const FilterCall& node) {
  const int line = runtime_.line();
  const Value input = EvaluateOrNone(node.input);
  const Arguments arguments = EvaluateArguments(node.arguments);
  runtime_.set_line(line);
  return runtime_.failed() ? Value() : ApplyFilter(runtime_, node.name, input, arguments);
}

Value Interpreter::EvaluateNode(const TestCall& node) {
  const Value input = Evaluate(*node.input);
  const Arguments arguments = EvaluateArguments(node.arguments);
  if (runtime_.failed()) return Value();
  return ApplyTest(runtime_, node.name, input, arguments) != node.negated;
}

Value Interpreter::EvaluateNode(const SequenceLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& e : node.items) items.push_back(Evaluate(*e));
  return runtime_.failed() ? Value() : runtime_.MakeSequence(node.kind, std::move(items));
}

Value Interpreter::EvaluateNode(const DictLiteral& node) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : node.entries) {
    Value k = Evaluate(*key);
    Value v = Evaluate(*value);
    if (runtime_.failed()) return Value();
    runtime_.SetItem(*dict, std::move(k), std::move(v));
  }
  return Value(std::move(dict));
}

}  // namespace skein::engine::chat_template
