// String and number literals of expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/chat_template/values/value.h"

namespace skein::engine::chat_template {

// The text between the quotes, with Python's escapes resolved; unknown ones stay as they are.
// Nothing where a \x, \u or \U lacks its digits.
std::optional<std::string> Unescape(std::string_view body);

// Bytes of the number that starts at the front of `source`, which is a digit.
size_t NumberLength(std::string_view source, bool* is_float);
// Nothing where the number does not fit.
std::optional<Value> ParseNumber(std::string_view text, bool is_float);

// Python's int(text, base) and float(text): white space around and underscores between digits are
// fine. Base 0 is none here; 2, 8 and 16 take their prefix.
std::optional<Int> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace skein::engine::chat_template
