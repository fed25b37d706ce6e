#include "engine/chat_template/operations/arithmetic.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/operations/format.h"

namespace skein::engine::chat_template {
namespace {

std::string_view Symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    default:
      return "** or pow()";
  }
}

Value FailTypes(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right) {
  if (left.IsUndefined()) return runtime.FailUndefined(left);
  if (right.IsUndefined()) return runtime.FailUndefined(right);
  if (op == BinaryOperator::kAdd && (left.IsString() || left.IsSequence(SequenceKind::kList))) {
    const std::string type(left.TypeName());
    return runtime.Fail(absl::StrCat("can only concatenate ", type, " (not \"",
                                     std::string(right.TypeName()), "\") to ", type));
  }
  return runtime.Fail(absl::StrCat("unsupported operand type(s) for ", std::string(Symbol(op)),
                                   ": '", std::string(left.TypeName()), "' and '",
                                   std::string(right.TypeName()), "'"));
}

Value FailOverflow(Runtime& runtime) { return runtime.Fail("an integer that is too large"); }

Value Power(Runtime& runtime, Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return runtime.Fail("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? Int{1} : base;
  if (base == -1) return exponent % 2 == 0 ? Int{1} : Int{-1};
  Int result = 1;
  for (Int i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return FailOverflow(runtime);
  }
  return result;
}

Value IntegerArithmetic(Runtime& runtime, BinaryOperator op, Int a, Int b) {
  Int result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::kPower:
      return Power(runtime, a, b);
    default: {
      if (b == 0) return runtime.Fail("division by zero");
      if (op == BinaryOperator::kDivide) return static_cast<double>(a) / static_cast<double>(b);
      if (b == -1) {
        if (op == BinaryOperator::kModulo) return 0;
        overflow = __builtin_sub_overflow(Int{0}, a, &result);
        break;
      }
      const Int remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      if (op == BinaryOperator::kModulo) return adjust ? remainder + b : remainder;
      return adjust ? a / b - 1 : a / b;
    }
  }
  return overflow ? FailOverflow(runtime) : Value(result);
}

Value RealArithmetic(Runtime& runtime, BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return a + b;
    case BinaryOperator::kSubtract:
      return a - b;
    case BinaryOperator::kMultiply:
      return a * b;
    case BinaryOperator::kPower:
      if (a == 0 && b < 0) return runtime.Fail("0.0 cannot be raised to a negative power");
      return std::pow(a, b);
    default:
      break;
  }
  if (b == 0) return runtime.Fail("float division by zero");
  if (op == BinaryOperator::kDivide) return a / b;
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == BinaryOperator::kModulo) return remainder == 0 ? std::copysign(0.0, b) : remainder;
  const double quotient = (a - remainder) / b;
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1;
  return floor;
}

Value Repeat(Runtime& runtime, const Value& sequence, Int times) {
  const Int n = times < 0 ? 0 : times;
  const size_t size =
      sequence.IsString() ? sequence.text().size() : sequence.sequence().items.size();
  const Int limit = static_cast<Int>(runtime.limits().output_bytes_max);
  if (n > limit || static_cast<Int>(size) * n > limit) {
    return runtime.Fail("the template makes too long a text");
  }
  const auto count = static_cast<size_t>(n);
  if (sequence.IsString()) {
    if (!runtime.ChargeBytes(size * count)) return Value();
    std::string text;
    text.reserve(size * count);
    for (size_t i = 0; i < count && size > 0; ++i) text += sequence.text();
    return Value(std::move(text));
  }
  if (!runtime.Charge(size * count)) return Value();
  std::vector<Value> items;
  for (size_t i = 0; i < count && size > 0; ++i) {
    items.insert(items.end(), sequence.sequence().items.begin(), sequence.sequence().items.end());
  }
  return runtime.MakeSequence(sequence.sequence().kind, std::move(items));
}

bool IsRepeatable(const Value& v) {
  return v.IsString() || v.IsSequence(SequenceKind::kList) || v.IsSequence(SequenceKind::kTuple);
}

Value Join(Runtime& runtime, const Value& left, const Value& right) {
  if (left.IsString()) {
    if (!runtime.ChargeBytes(left.text().size() + right.text().size())) return Value();
    std::string text(left.text());
    text += right.text();
    return Value(std::move(text));
  }
  std::vector<Value> items = left.sequence().items;
  if (!runtime.Charge(items.size() + right.sequence().items.size())) return Value();
  items.insert(items.end(), right.sequence().items.begin(), right.sequence().items.end());
  return runtime.MakeSequence(left.sequence().kind, std::move(items));
}

}  // namespace

Value Arithmetic(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right) {
  Int i = 0;
  Int j = 0;
  if (left.AsInt(&i) && right.AsInt(&j)) return IntegerArithmetic(runtime, op, i, j);
  double x = 0;
  double y = 0;
  if (left.AsNumber(&x) && right.AsNumber(&y)) return RealArithmetic(runtime, op, x, y);
  if (op == BinaryOperator::kAdd && IsRepeatable(left) && IsRepeatable(right) &&
      left.TypeName() == right.TypeName()) {
    return Join(runtime, left, right);
  }
  if (op == BinaryOperator::kMultiply) {
    if (IsRepeatable(left) && right.AsInt(&j)) return Repeat(runtime, left, j);
    if (IsRepeatable(right) && left.AsInt(&i)) return Repeat(runtime, right, i);
  }
  if (op == BinaryOperator::kModulo && left.IsString()) {
    return FormatPercent(runtime, left.text(), right);
  }
  return FailTypes(runtime, op, left, right);
}

double RoundHalfEven(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    if (digits < -308) return 0;
    const double scale = std::pow(10.0, -digits);
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return std::strtod(buffer, nullptr);
}

bool Truncate(double value, Int* out) {
  if (!(std::abs(value) < 1.7e38)) return false;
  *out = static_cast<Int>(value);
  return true;
}

}  // namespace skein::engine::chat_template
