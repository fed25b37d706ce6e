// Jinja's tests: value is name(arguments).
#pragma once

#include <string_view>

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

bool ApplyTest(Runtime& runtime, std::string_view name, const Value& input,
               const Arguments& arguments);

}  // namespace skein::engine::chat_template
