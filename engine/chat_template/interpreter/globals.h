// The functions that every template may call: range, dict, namespace, joiner, cycler,
// raise_exception, strftime_now.
#pragma once

#include <string_view>

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

// False where there is no such global.
bool FindGlobal(std::string_view name, Value* out);

}  // namespace skein::engine::chat_template
