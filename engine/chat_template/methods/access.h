// object.name, object[key] and slices, as Jinja's environment resolves them: an attribute (a
// method) first for the dot, an item first for the brackets, undefined where there is neither.
#pragma once

#include <string_view>

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

Value GetAttributeOf(Runtime& runtime, const Value& object, std::string_view name);
Value GetItemOf(Runtime& runtime, const Value& object, const Value& key);
// Each of start, stop and step may be none.
Value SliceOf(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
              const Value& step);

// "a.b.0" as the filters' `attribute` arguments spell it; an integer is an index.
Value GetPath(Runtime& runtime, const Value& object, const Value& path);

}  // namespace skein::engine::chat_template
