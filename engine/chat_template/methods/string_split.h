// str.split and its relatives.
#pragma once

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

Value StringSplit(Runtime& runtime, const Value& self, const Arguments& arguments);
Value StringRightSplit(Runtime& runtime, const Value& self, const Arguments& arguments);
Value StringSplitLines(Runtime& runtime, const Value& self, const Arguments& arguments);
Value StringPartition(Runtime& runtime, const Value& self, const Arguments& arguments);
Value StringRightPartition(Runtime& runtime, const Value& self, const Arguments& arguments);

// str.replace(old, with, count); count < 0: all.
Value ReplaceText(Runtime& runtime, std::string_view text, std::string_view old,
                  std::string_view with, Int count);
// The last occurrence of a needle, npos if none. Pays for its quadratic worst case.
size_t FindLast(Runtime& runtime, std::string_view text, std::string_view needle);

}  // namespace skein::engine::chat_template
