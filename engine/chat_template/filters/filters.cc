#include "engine/chat_template/filters/filters.h"

#include "absl/strings/str_cat.h"
#include "engine/chat_template/operations/json.h"

namespace skein::engine::chat_template {
namespace {

Method FindFilter(std::string_view name) {
  if (name == "tojson") return ToJsonFilter;
  if (const Method m = FindTextFilter(name)) return m;
  if (const Method m = FindSequenceFilter(name)) return m;
  if (const Method m = FindSelectionFilter(name)) return m;
  return FindNumberFilter(name);
}

}  // namespace

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

Value ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                  const Arguments& arguments) {
  const Method filter = FindFilter(name);
  if (filter == nullptr) {
    return runtime.Fail(absl::StrCat("No filter named '", std::string(name), "'."));
  }
  // map('map', ...) comes back here.
  const Runtime::Frame frame(runtime);
  if (!runtime.Charge(1 + arguments.positional.size())) return Value();
  return filter(runtime, input, arguments);
}

}  // namespace skein::engine::chat_template
