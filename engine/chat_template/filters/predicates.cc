#include "engine/chat_template/filters/predicates.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/filters/filters.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {
namespace {

// argument: the test's only one, or undefined.
using Test = bool (*)(Runtime&, const Value& input, const Value& argument);

struct Entry {
  Test test;
  size_t arguments = 0;
};

// input % divisor == remainder
bool HasRemainder(Runtime& runtime, const Value& input, const Value& divisor, int remainder) {
  const Value rest = ApplyBinary(runtime, BinaryOperator::kModulo, input, divisor);
  return !runtime.failed() && ScalarsEqual(rest, remainder);
}

template <Comparison op>
bool Compare(Runtime& runtime, const Value& input, const Value& argument) {
  return Compares(runtime, op, input, argument);
}

bool Defined(Runtime&, const Value& v, const Value&) { return !v.IsUndefined(); }
bool Undefined(Runtime&, const Value& v, const Value&) { return v.IsUndefined(); }
bool None(Runtime&, const Value& v, const Value&) { return v.IsNone(); }
bool Boolean(Runtime&, const Value& v, const Value&) { return v.IsBool(); }
bool True(Runtime&, const Value& v, const Value&) { return v.IsBool() && v.boolean(); }
bool False(Runtime&, const Value& v, const Value&) { return v.IsBool() && !v.boolean(); }
bool Integer(Runtime&, const Value& v, const Value&) { return v.IsInt(); }
bool Float(Runtime&, const Value& v, const Value&) { return v.IsFloat(); }
bool Number(Runtime&, const Value& v, const Value&) { return v.IsNumber(); }
bool String(Runtime&, const Value& v, const Value&) { return v.IsString(); }
bool Mapping(Runtime&, const Value& v, const Value&) { return v.IsDict(); }
bool Never(Runtime&, const Value&, const Value&) { return false; }

bool IsSequenceTest(Runtime&, const Value& v, const Value&) {
  if (v.IsSequence()) {
    const SequenceKind kind = v.sequence().kind;
    return kind != SequenceKind::kView && kind != SequenceKind::kGenerator;
  }
  return v.IsString() || v.IsDict() || v.IsUndefined();
}

bool Iterable(Runtime&, const Value& v, const Value&) {
  return v.IsSequence() || v.IsString() || v.IsDict() || v.IsUndefined();
}

bool Callable(Runtime&, const Value& v, const Value&) {
  return v.IsUndefined() || (v.IsObject() && v.object().IsCallable());
}

bool Odd(Runtime& runtime, const Value& v, const Value&) { return HasRemainder(runtime, v, 2, 1); }
bool Even(Runtime& runtime, const Value& v, const Value&) { return HasRemainder(runtime, v, 2, 0); }
bool DivisibleBy(Runtime& runtime, const Value& v, const Value& divisor) {
  return HasRemainder(runtime, v, divisor, 0);
}

bool IsCase(Runtime& runtime, const Value& v, std::string_view method) {
  const Value text(ToText(runtime, v));
  return !runtime.failed() && FindStringMethod(method)(runtime, text, {}).Truthy();
}
bool LowerCase(Runtime& runtime, const Value& v, const Value&) {
  return IsCase(runtime, v, "islower");
}
bool UpperCase(Runtime& runtime, const Value& v, const Value&) {
  return IsCase(runtime, v, "isupper");
}

bool SameAs(Runtime&, const Value& v, const Value& other) { return v.Identical(other); }
bool In(Runtime& runtime, const Value& v, const Value& container) {
  return Contains(runtime, container, v);
}

bool FilterName(Runtime&, const Value& v, const Value&) {
  return v.IsString() && IsFilter(v.text());
}

const Entry* FindTest(std::string_view name);

bool TestName(Runtime&, const Value& v, const Value&) {
  return v.IsString() && FindTest(v.text()) != nullptr;
}

const Entry* FindTest(std::string_view name) {
  constexpr Test kEqual = Compare<Comparison::kEq>;
  constexpr Test kNotEqual = Compare<Comparison::kNe>;
  constexpr Test kLess = Compare<Comparison::kLt>;
  constexpr Test kLessEqual = Compare<Comparison::kLe>;
  constexpr Test kGreater = Compare<Comparison::kGt>;
  constexpr Test kGreaterEqual = Compare<Comparison::kGe>;
  static const auto* const kTests = new std::unordered_map<std::string_view, Entry>{
      {"defined", {Defined}},
      {"undefined", {Undefined}},
      {"none", {None}},
      {"boolean", {Boolean}},
      {"true", {True}},
      {"false", {False}},
      {"integer", {Integer}},
      {"float", {Float}},
      {"number", {Number}},
      {"string", {String}},
      {"mapping", {Mapping}},
      {"sequence", {IsSequenceTest}},
      {"iterable", {Iterable}},
      {"callable", {Callable}},
      {"odd", {Odd}},
      {"even", {Even}},
      {"lower", {LowerCase}},
      {"upper", {UpperCase}},
      {"escaped", {Never}},
      {"filter", {FilterName}},
      {"test", {TestName}},
      {"divisibleby", {DivisibleBy, 1}},
      {"sameas", {SameAs, 1}},
      {"in", {In, 1}},
      {"eq", {kEqual, 1}},
      {"equalto", {kEqual, 1}},
      {"==", {kEqual, 1}},
      {"ne", {kNotEqual, 1}},
      {"!=", {kNotEqual, 1}},
      {"lt", {kLess, 1}},
      {"lessthan", {kLess, 1}},
      {"<", {kLess, 1}},
      {"le", {kLessEqual, 1}},
      {"<=", {kLessEqual, 1}},
      {"gt", {kGreater, 1}},
      {"greaterthan", {kGreater, 1}},
      {">", {kGreater, 1}},
      {"ge", {kGreaterEqual, 1}},
      {">=", {kGreaterEqual, 1}},
  };
  const auto it = kTests->find(name);
  return it == kTests->end() ? nullptr : &it->second;
}

}  // namespace

bool ApplyTest(Runtime& runtime, std::string_view name, const Value& input,
               const Arguments& arguments) {
  const Entry* const entry = FindTest(name);
  if (entry == nullptr) {
    runtime.Fail(absl::StrCat("No test named '", std::string(name), "'."));
    return false;
  }
  const size_t given = arguments.positional.size() + arguments.named.size();
  if (given != entry->arguments) {
    runtime.Fail(absl::StrCat("the test '", std::string(name), "' takes ", entry->arguments,
                              " arguments, got ", given));
    return false;
  }
  Value argument;
  if (given == 1) {
    argument = arguments.named.empty() ? arguments.positional[0] : arguments.named[0].second;
  }
  return entry->test(runtime, input, argument);
}

}  // namespace skein::engine::chat_template
