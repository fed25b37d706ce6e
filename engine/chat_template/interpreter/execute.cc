// Interpreter: statements.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/filters/filters.h"
#include "engine/chat_template/interpreter/interpreter.h"
#include "engine/chat_template/interpreter/loop.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {
namespace {

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const MacroDefinition& definition, Scope* scope)
      : interpreter_(interpreter), definition_(definition), scope_(scope) {}
  std::string_view TypeName() const override { return "Macro"; }
  bool Get(Runtime&, std::string_view name, Value* out) const override {
    if (name == "name") *out = Value(definition_.name);
    return name == "name";
  }
  bool IsCallable() const override { return true; }
  Value Call(Runtime&, const Arguments& arguments) override {
    return interpreter_.CallMacro(definition_, scope_, arguments);
  }
  int Depth() const override { return 0; }

 private:
  Interpreter& interpreter_;
  const MacroDefinition& definition_;
  Scope* scope_;  // kept by the interpreter
};

}  // namespace

// Enters a scope inside `parent`; leaving it keeps the scope for macros that were defined in it.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter),
        own_(std::make_unique<Scope>(parent)),
        outer_(std::exchange(interpreter.scope_, own_.get())) {}
  ~ScopeGuard() {
    interpreter_.scope_ = outer_;
    if (own_->captured()) interpreter_.captured_.push_back(std::move(own_));
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::unique_ptr<Scope> own_;
  Scope* outer_;
};

std::string Interpreter::Run() {
  const ScopeGuard guard(*this, nullptr);
  return Capture(program_.body);
}

Interpreter::Flow Interpreter::Execute(const Body& body) {
  for (const Statement& statement : body) {
    const Flow flow = ExecuteOne(statement);
    if (flow != Flow::kNormal) return flow;
    if (runtime_.failed()) break;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteOne(const Statement& statement) {
  const Runtime::Frame frame(runtime_);
  if (!runtime_.Charge(1)) return Flow::kNormal;
  runtime_.set_line(statement.line);
  return std::visit([this](const auto& node) { return ExecuteNode(node); }, statement.node);
}

void Interpreter::Write(std::string_view text) {
  if (runtime_.failed() || !runtime_.ChargeBytes(text.size())) return;
  if (out_->size() + text.size() > runtime_.limits().output_bytes_max) {
    runtime_.Fail("the template makes too long a text");
    return;
  }
  out_->append(text);
}

std::string Interpreter::Capture(const Body& body) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  Execute(body);
  out_ = outer;
  return text;
}

Value Interpreter::ApplyFilters(const std::vector<ExpressionPtr>& filters, Value value) {
  for (const auto& e : filters) {
    const auto& filter = std::get<FilterCall>(e->node);
    runtime_.set_line(e->line);
    const Arguments arguments = EvaluateArguments(filter.arguments);
    if (runtime_.failed()) return Value();
    value = ApplyFilter(runtime_, filter.name, value, arguments);
  }
  return value;
}

Interpreter::Flow Interpreter::ExecuteNode(const TextStatement& node) {
  Write(node.text);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteNode(const OutputStatement& node) {
  const Value value = Evaluate(*node.value);
  if (value.IsString()) {
    Write(value.text());
  } else if (!runtime_.failed()) {
    Write(ToText(runtime_, value));
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteNode(const IfStatement& node) {
  for (const auto& [condition, body] : node.branches) {
    const bool taken = Evaluate(*condition).Truthy();
    if (runtime_.failed()) return Flow::kNormal;
    if (taken) return Execute(body);
  }
  return Execute(node.otherwise);
}

// The items that pass the loop's condition, which sees the loop's variables but not `loop`.
std::vector<Value> Interpreter::LoopItems(const ForStatement& node) {
  std::vector<Value> items = Iterate(runtime_, Evaluate(*node.iterable));
  if (node.condition == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    if (!runtime_.ChargeIteration()) break;
    const ScopeGuard guard(*this, scope_);
    Assign(node.target, item);
    if (Evaluate(*node.condition).Truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::ExecuteNode(const ForStatement& node) {
  auto loop = std::make_shared<LoopContext>(LoopItems(node));
  if (runtime_.failed() || !runtime_.CheckDepth(loop->Depth())) return Flow::kNormal;
  // As in Jinja, `else` runs unless some iteration came to the end of its body.
  bool completed = false;
  for (size_t i = 0; i < loop->size() && runtime_.ChargeIteration(); ++i) {
    loop->set_index(i);
    const ScopeGuard guard(*this, scope_);
    scope_->Set("loop", Value(std::shared_ptr<Object>(loop)));
    Assign(node.target, loop->item(i));
    const Flow flow = Execute(node.body);
    if (flow == Flow::kBreak || runtime_.failed()) break;
    completed |= flow == Flow::kNormal;
  }
  if (completed || runtime_.failed()) return Flow::kNormal;
  const ScopeGuard guard(*this, scope_);
  return Execute(node.otherwise);
}

void Interpreter::Assign(const Target& target, Value value) {
  if (!target.is_tuple) {
    if (!target.attribute.empty()) return AssignAttribute(target, std::move(value));
    return scope_->Set(target.name, std::move(value));
  }
  std::vector<Value> parts = Iterate(runtime_, value);
  if (runtime_.failed()) return;
  if (parts.size() != target.unpack.size()) {
    runtime_.Fail(absl::StrCat(parts.size() > target.unpack.size()
                                   ? "too many values to unpack (expected "
                                   : "not enough values to unpack (expected ",
                               target.unpack.size(), ")"));
    return;
  }
  for (size_t i = 0; i < parts.size(); ++i) Assign(target.unpack[i], std::move(parts[i]));
}

void Interpreter::AssignAttribute(const Target& target, Value value) {
  const Value* const found = scope_->Find(target.name);
  auto* const ns =
      found != nullptr && found->IsObject() ? dynamic_cast<Namespace*>(&found->object()) : nullptr;
  if (ns == nullptr) {
    runtime_.Fail("cannot assign attribute on non-namespace object");
    return;
  }
  ns->Set(target.attribute, std::move(value));
}

Interpreter::Flow Interpreter::ExecuteNode(const SetStatement& node) {
  Value value = Evaluate(*node.value);
  if (!runtime_.failed()) Assign(node.target, std::move(value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteNode(const SetBlockStatement& node) {
  Value value;
  {
    const ScopeGuard guard(*this, scope_);
    value = runtime_.MakeString(Capture(node.body));
  }
  value = ApplyFilters(node.filters, std::move(value));
  if (!runtime_.failed()) Assign(node.target, std::move(value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteNode(const FilterBlockStatement& node) {
  const ScopeGuard guard(*this, scope_);
  const Value value = ApplyFilters(node.filters, runtime_.MakeString(Capture(node.body)));
  if (!runtime_.failed()) Write(ToText(runtime_, value));
  return Flow::kNormal;
}

Value Interpreter::MakeMacro(const MacroDefinition& macro) {
  scope_->Capture();
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(*this, macro, scope_)));
}

Interpreter::Flow Interpreter::ExecuteNode(const MacroStatement& node) {
  scope_->Set(node.macro.name, MakeMacro(node.macro));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteNode(const CallBlockStatement& node) {
  const Value caller = MakeMacro(node.caller);
  runtime_.set_line(node.call->line);
  const Value value = CallWith(std::get<Call>(node.call->node), &caller);
  if (!runtime_.failed()) Write(ToText(runtime_, value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteNode(const ScopeStatement& node) {
  std::vector<Value> values;
  for (const auto& assignment : node.assignments) values.push_back(Evaluate(*assignment.second));
  if (runtime_.failed()) return Flow::kNormal;
  const ScopeGuard guard(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    Assign(node.assignments[i].first, std::move(values[i]));
  }
  return Execute(node.body);
}

Value Interpreter::CallMacro(const MacroDefinition& macro, Scope* definition_scope,
                             const Arguments& arguments) {
  const Runtime::Frame frame(runtime_);
  if (!runtime_.Charge(1 + arguments.positional.size())) return Value();
  const int line = runtime_.line();
  const ScopeGuard guard(*this, definition_scope);
  if (!BindParameters(macro, arguments)) return Value();
  std::string text = Capture(macro.body);
  runtime_.set_line(line);
  return runtime_.failed() ? Value() : runtime_.MakeString(std::move(text));
}

bool Interpreter::BindParameters(const MacroDefinition& macro, const Arguments& arguments) {
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto named =
        std::find_if(arguments.named.begin(), arguments.named.end(),
                     [&](const auto& argument) { return argument.first == parameter.name; });
    const bool is_named = named != arguments.named.end();
    if (i < arguments.positional.size()) {
      if (is_named) {
        runtime_.Fail(absl::StrCat("macro '", macro.name, "' got multiple values for argument '",
                                   parameter.name, "'"));
      }
      scope_->Set(parameter.name, arguments.positional[i]);
    } else if (is_named) {
      scope_->Set(parameter.name, named->second);
    } else if (parameter.default_value != nullptr) {
      scope_->Set(parameter.name, Evaluate(*parameter.default_value));
    } else {
      scope_->Set(parameter.name, Value::Undefined(absl::StrCat("parameter '", parameter.name,
                                                                "' was not provided")));
    }
  }
  BindRest(macro, arguments);
  return !runtime_.failed();
}

// varargs, kwargs and caller, where the body mentions them; what is left over otherwise fails.
void Interpreter::BindRest(const MacroDefinition& macro, const Arguments& arguments) {
  std::vector<Value> varargs;
  if (arguments.positional.size() > macro.parameters.size()) {
    if (!macro.uses_varargs) {
      runtime_.Fail(absl::StrCat("macro '", macro.name, "' takes not more than ",
                                 macro.parameters.size(), " argument(s)"));
    }
    varargs.assign(
        arguments.positional.begin() + static_cast<std::ptrdiff_t>(macro.parameters.size()),
        arguments.positional.end());
  }
  auto kwargs = std::make_shared<Dict>();
  Value caller = Value::Undefined("No caller defined");
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first;
    const Value& value = argument.second;
    const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                   [&](const Parameter& p) { return p.name == name; });
    if (known) continue;
    if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      runtime_.SetItem(*kwargs, Value(name), value);
    } else {
      runtime_.Fail(
          absl::StrCat("macro '", macro.name, "' takes no keyword argument '", name, "'"));
    }
  }
  if (macro.uses_varargs) scope_->Set("varargs", runtime_.MakeTuple(std::move(varargs)));
  if (macro.uses_kwargs) scope_->Set("kwargs", Value(std::move(kwargs)));
  if (macro.uses_caller) scope_->Set("caller", std::move(caller));
}

}  // namespace skein::engine::chat_template
