// Jinja's filters: value | name(arguments).
#pragma once

#include <string_view>

#include "engine/chat_template/methods/methods.h"
#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

Value ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                  const Arguments& arguments);
bool IsFilter(std::string_view name);

// The filters by the kind of value they work on; nullptr if there is none of that name.
Method FindTextFilter(std::string_view name);
Method FindNumberFilter(std::string_view name);
Method FindSequenceFilter(std::string_view name);
Method FindSelectionFilter(std::string_view name);

}  // namespace skein::engine::chat_template
