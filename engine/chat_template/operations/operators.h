// Python's operators on values. All fail through the runtime and then return undefined or false.
#pragma once

#include <string_view>
#include <vector>

#include "engine/chat_template/parse/ast.h"
#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

// op: not kAnd and not kOr, which do not evaluate both sides.
Value ApplyBinary(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right);
Value ApplyUnary(Runtime& runtime, UnaryOperator op, const Value& operand);

bool Compares(Runtime& runtime, Comparison op, const Value& left, const Value& right);
bool Equal(Runtime& runtime, const Value& left, const Value& right);
// Python's `<`; fails for types that have no order.
bool Less(Runtime& runtime, const Value& left, const Value& right);
bool Contains(Runtime& runtime, const Value& container, const Value& item);

// The items of an iteration over the value: items, keys, characters. A generator is empty
// afterwards.
std::vector<Value> Iterate(Runtime& runtime, const Value& value);
// len(value)
Value Length(Runtime& runtime, const Value& value);

}  // namespace skein::engine::chat_template
