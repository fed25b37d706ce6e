#include "engine/chat_template/operations/operators.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/operations/arithmetic.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

Value Concat(Runtime& runtime, const Value& left, const Value& right) {
  std::string text = ToText(runtime, left);
  const std::string tail = ToText(runtime, right);
  if (!runtime.ChargeBytes(text.size() + tail.size())) return Value();
  return Value(text + tail);
}

bool SameOrder(const Value& a, const Value& b) {
  return a.IsSequence() && b.IsSequence() && a.sequence().kind == b.sequence().kind &&
         (a.sequence().kind == SequenceKind::kList || a.sequence().kind == SequenceKind::kTuple);
}

bool SequencesEqual(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(runtime, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool DictsEqual(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(runtime, value, *other)) return false;
  }
  return true;
}

bool FailOrder(Runtime& runtime, const Value& left, const Value& right) {
  if (left.IsUndefined()) runtime.FailUndefined(left);
  if (right.IsUndefined()) runtime.FailUndefined(right);
  runtime.Fail(absl::StrCat("'<' not supported between instances of '",
                            std::string(left.TypeName()), "' and '", std::string(right.TypeName()),
                            "'"));
  return false;
}

bool TextContains(Runtime& runtime, std::string_view text, const Value& item) {
  if (item.IsUndefined()) {
    runtime.FailUndefined(item);
  } else if (!item.IsString()) {
    runtime.Fail(absl::StrCat("'in <string>' requires string as left operand, not ",
                              std::string(item.TypeName())));
  } else if (runtime.Charge(1 + text.size() / 64)) {
    return Find(text, item.text()) != std::string_view::npos;
  }
  return false;
}

bool OrderedLess(Runtime& runtime, Comparison op, const Value& left, const Value& right) {
  // a <= b is not the same as !(b < a) for numbers that have no order (NaN).
  double x = 0;
  double y = 0;
  const bool floats =
      (left.IsFloat() || right.IsFloat()) && left.AsNumber(&x) && right.AsNumber(&y);
  switch (op) {
    case Comparison::kLt:
      return Less(runtime, left, right);
    case Comparison::kGt:
      return Less(runtime, right, left);
    case Comparison::kLe:
      return floats ? x <= y : !Less(runtime, right, left);
    default:
      return floats ? x >= y : !Less(runtime, left, right);
  }
}

}  // namespace

Value ApplyBinary(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right) {
  if (op == BinaryOperator::kConcat) return Concat(runtime, left, right);
  return Arithmetic(runtime, op, left, right);
}

Value ApplyUnary(Runtime& runtime, UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::kNot) return !operand.Truthy();
  if (operand.IsUndefined()) return runtime.FailUndefined(operand);
  const bool minus = op == UnaryOperator::kMinus;
  Int integer = 0;
  if (operand.AsInt(&integer)) {
    if (!minus) return integer;
    return Arithmetic(runtime, BinaryOperator::kSubtract, 0, integer);
  }
  if (operand.IsFloat()) return minus ? -operand.real() : operand.real();
  return runtime.Fail(absl::StrCat("bad operand type for unary ", minus ? "-" : "+", ": '",
                                   std::string(operand.TypeName()), "'"));
}

bool Equal(Runtime& runtime, const Value& left, const Value& right) {
  if (!runtime.Charge(1)) return false;
  if (left.IsString() && right.IsString()) {
    return left.text().size() == right.text().size() && runtime.Charge(left.text().size() / 64) &&
           left.text() == right.text();
  }
  if (left.IsSequence() && right.IsSequence()) {
    return left.Identical(right) || SequencesEqual(runtime, left.sequence(), right.sequence());
  }
  if (left.IsDict() && right.IsDict()) {
    return left.Identical(right) || DictsEqual(runtime, left.dict(), right.dict());
  }
  if (left.IsObject() && right.IsObject()) return left.Identical(right);
  return ScalarsEqual(left, right);
}

bool Less(Runtime& runtime, const Value& left, const Value& right) {
  if (!runtime.Charge(1)) return false;
  Int i = 0;
  Int j = 0;
  if (left.AsInt(&i) && right.AsInt(&j)) return i < j;
  double x = 0;
  double y = 0;
  if (left.AsNumber(&x) && right.AsNumber(&y)) return x < y;
  // Bytes of UTF-8 are in the order of their code points.
  if (left.IsString() && right.IsString()) return left.text() < right.text();
  if (!SameOrder(left, right)) return FailOrder(runtime, left, right);
  const auto& a = left.sequence().items;
  const auto& b = right.sequence().items;
  for (size_t k = 0; k < a.size() && k < b.size(); ++k) {
    if (!Equal(runtime, a[k], b[k])) return Less(runtime, a[k], b[k]);
  }
  return a.size() < b.size();
}

bool Compares(Runtime& runtime, Comparison op, const Value& left, const Value& right) {
  switch (op) {
    case Comparison::kEq:
      return Equal(runtime, left, right);
    case Comparison::kNe:
      return !Equal(runtime, left, right);
    case Comparison::kIn:
      return Contains(runtime, right, left);
    case Comparison::kNotIn:
      return !Contains(runtime, right, left);
    default:
      return OrderedLess(runtime, op, left, right);
  }
}

bool Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.IsUndefined()) return false;
  if (container.IsString()) return TextContains(runtime, container.text(), item);
  if (container.IsDict()) {
    return runtime.Charge(item.IsString() ? 1 : 1 + container.dict().size()) &&
           container.dict().Find(item) != nullptr;
  }
  if (container.IsSequence()) {
    for (const Value& candidate : container.sequence().items) {
      if (Equal(runtime, candidate, item)) return true;
      if (runtime.failed()) return false;
    }
    return false;
  }
  runtime.Fail(
      absl::StrCat("argument of type '", std::string(container.TypeName()), "' is not iterable"));
  return false;
}

std::vector<Value> Iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.IsUndefined()) return items;
  if (value.IsSequence()) {
    if (!runtime.Charge(1 + value.sequence().items.size())) return items;
    if (value.IsSequence(SequenceKind::kGenerator)) {
      items.swap(value.sequence().items);
    } else {
      items = value.sequence().items;
    }
  } else if (value.IsDict()) {
    if (!runtime.Charge(1 + value.dict().size())) return items;
    for (const auto& entry : value.dict().entries()) items.push_back(entry.first);
  } else if (value.IsString()) {
    if (!runtime.Charge(1 + value.text().size())) return items;
    for (std::string_view c : SplitCodePoints(value.text())) items.emplace_back(c);
  } else {
    runtime.Fail(absl::StrCat("'", std::string(value.TypeName()), "' object is not iterable"));
  }
  return items;
}

Value Length(Runtime& runtime, const Value& value) {
  if (value.IsUndefined()) return 0;
  if (value.IsString()) {
    return runtime.Charge(1 + value.text().size() / 64) ? Value(CodePointCount(value.text()))
                                                        : Value();
  }
  if (value.IsDict()) return value.dict().size();
  if (value.IsSequence() && !value.IsSequence(SequenceKind::kGenerator)) {
    return value.sequence().items.size();
  }
  if (value.IsObject()) {
    Value length;
    if (value.TypeName() == "LoopContext" && value.object().Get(runtime, "length", &length)) {
      return length;
    }
  }
  return runtime.Fail(
      absl::StrCat("object of type '", std::string(value.TypeName()), "' has no len()"));
}

}  // namespace skein::engine::chat_template
