// int, float, round, abs, default.
#include <cmath>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/filters/filters.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/arithmetic.h"
#include "engine/chat_template/operations/operators.h"
#include "engine/chat_template/values/literals.h"

namespace skein::engine::chat_template {
namespace {

Value ToInt(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "int", arguments, {"default", "base"}, 0);
  const Value otherwise = bound.ValueOr(0, 0);
  const Int base = bound.IntOr(1, 10);
  if (runtime.failed()) return Value();
  if (input.IsUndefined()) return runtime.FailUndefined(input);
  Int integer = 0;
  if (input.AsInt(&integer)) return integer;
  double real = 0;
  if (input.IsString()) {
    if (const auto i = ParseInt(input.text(), static_cast<int>(base))) return *i;
    const auto parsed = ParseFloat(input.text());
    if (!parsed) return otherwise;
    real = *parsed;
  } else if (!input.AsNumber(&real)) {
    return otherwise;
  }
  if (std::isnan(real)) return otherwise;
  if (!Truncate(real, &integer)) return runtime.Fail("cannot convert float to integer");
  return integer;
}

Value ToFloat(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "float", arguments, {"default"}, 0);
  if (input.IsUndefined()) return runtime.FailUndefined(input);
  double real = 0;
  if (input.AsNumber(&real)) return real;
  const auto parsed = input.IsString() ? ParseFloat(input.text()) : std::nullopt;
  return parsed ? Value(*parsed) : bound.ValueOr(0, 0.0);
}

Value Round(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "round", arguments, {"precision", "method"}, 0);
  const Int precision = bound.IntOr(0, 0);
  const std::string method = bound.TextOr(1, "common");
  double value = 0;
  if (input.IsUndefined()) return runtime.FailUndefined(input);
  if (runtime.failed()) return Value();
  if (!input.AsNumber(&value) || precision > 300 || precision < -300) {
    return runtime.Fail("round takes a number");
  }
  const int digits = static_cast<int>(precision);
  if (method == "common") {
    Int integer = 0;
    if (!input.AsInt(&integer)) return RoundHalfEven(value, digits);
    if (digits >= 0) return integer;
    return static_cast<Int>(RoundHalfEven(value, digits));
  }
  const double scale = std::pow(10.0, digits);
  if (method == "ceil") return std::ceil(value * scale) / scale;
  if (method == "floor") return std::floor(value * scale) / scale;
  return runtime.Fail("method must be common, ceil or floor");
}

Value Absolute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "abs", arguments, {}, 0);
  if (input.IsUndefined()) return runtime.FailUndefined(input);
  Int integer = 0;
  if (input.AsInt(&integer)) {
    return integer < 0 ? ApplyUnary(runtime, UnaryOperator::kMinus, integer) : Value(integer);
  }
  if (input.IsFloat()) return std::abs(input.real());
  return runtime.Fail(
      absl::StrCat("bad operand type for abs(): '", std::string(input.TypeName()), "'"));
}

Value Default(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "default", arguments, {"default_value", "boolean"}, 0);
  const bool replace = input.IsUndefined() || (bound.Truthy(1, false) && !input.Truthy());
  return replace ? bound.ValueOr(0, "") : input;
}

}  // namespace

Method FindNumberFilter(std::string_view name) {
  static const auto* const kFilters = new std::unordered_map<std::string_view, Method>{
      {"int", ToInt},    {"float", ToFloat},   {"round", Round},
      {"abs", Absolute}, {"default", Default}, {"d", Default},
  };
  const auto it = kFilters->find(name);
  return it == kFilters->end() ? nullptr : it->second;
}

}  // namespace skein::engine::chat_template
