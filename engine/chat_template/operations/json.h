// JSON to values and back.
#pragma once

#include <string_view>

#include "engine/chat_template/values/runtime.h"
#include "nlohmann/json_fwd.hpp"

namespace skein::engine::chat_template {

// Objects keep the order of their keys.
Value FromJson(Runtime& runtime, const nlohmann::ordered_json& json);

// json.dumps. Without an indent everything is on one line.
struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Value ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

// The filter: tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false).
Value ToJsonFilter(Runtime& runtime, const Value& input, const Arguments& arguments);

}  // namespace skein::engine::chat_template
