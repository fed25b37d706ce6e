// + - * / // % ** of Python, on numbers, strings and lists.
#pragma once

#include "engine/chat_template/parse/ast.h"
#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

Value Arithmetic(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right);

// Python's round(x, digits): exact decimal value, ties to even.
double RoundHalfEven(double value, int digits);
// float to int as int(x) does; false where it does not fit or is not finite.
bool Truncate(double value, Int* out);

}  // namespace skein::engine::chat_template
