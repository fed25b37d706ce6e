// Values to text as Python writes them: str(), repr(), printf-style and str.format().
#pragma once

#include <string>
#include <string_view>

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

std::string FormatInt(Int value);
// repr(float): the shortest digits that read back as the same number.
std::string FormatFloat(double value);
std::string QuoteString(std::string_view text);

// str(value) and repr(value); "" after a failure (too long).
std::string ToText(Runtime& runtime, const Value& value);
std::string ToRepr(Runtime& runtime, const Value& value);

// format % operand: %s %r %d %i %u %f %e %g %x %o %c %% with flags, width and precision.
Value FormatPercent(Runtime& runtime, std::string_view format, const Value& operand);
// format.format(...): {} {0} {name}, with !s or !r; no format specification.
Value FormatBraces(Runtime& runtime, std::string_view format, const Arguments& arguments);

}  // namespace skein::engine::chat_template
