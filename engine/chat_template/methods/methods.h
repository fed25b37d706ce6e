// The methods of strings, dicts and lists. Those that would change their object are refused.
#pragma once

#include <string_view>

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

using Method = Value (*)(Runtime&, const Value& self, const Arguments&);

// nullptr where the type has no such method.
Method FindMethod(const Value& receiver, std::string_view name);
// The method as a value that can be called later; false where there is none.
bool BindMethod(const Value& receiver, std::string_view name, Value* out);
// list.append, dict.update, ...: what Jinja's immutable sandbox does not let templates call.
bool IsUnsafeMethod(const Value& receiver, std::string_view name);

// Each finds a method of one type.
Method FindStringMethod(std::string_view name);
Method FindCollectionMethod(const Value& receiver, std::string_view name);

}  // namespace skein::engine::chat_template
