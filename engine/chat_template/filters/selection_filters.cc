// map, select, reject, selectattr, rejectattr: filters that apply filters and tests to each item.
#include <unordered_map>

#include "engine/chat_template/filters/filters.h"
#include "engine/chat_template/filters/predicates.h"
#include "engine/chat_template/methods/access.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {
namespace {

const Value* NamedArgument(const Arguments& arguments, std::string_view name) {
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

// The arguments after the first `count`, for the filter or test that those name.
Arguments WithoutFirst(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value MapAttribute(Runtime& runtime, const Value& input, const Value& path,
                   const Arguments& arguments) {
  const Value* const otherwise = NamedArgument(arguments, "default");
  std::vector<Value> results;
  for (const Value& item : Iterate(runtime, input)) {
    Value value = GetPath(runtime, item, path);
    if (runtime.failed()) return Value();
    if (value.IsUndefined() && otherwise != nullptr && !otherwise->IsNone()) value = *otherwise;
    results.push_back(std::move(value));
  }
  return runtime.MakeGenerator(std::move(results));
}

Value Map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Value* const path = NamedArgument(arguments, "attribute");
  if (arguments.positional.empty() && path != nullptr) {
    return MapAttribute(runtime, input, *path, arguments);
  }
  if (arguments.positional.empty() || !arguments.positional[0].IsString()) {
    return runtime.Fail("map requires a filter argument");
  }
  const Arguments rest = WithoutFirst(arguments, 1);
  std::vector<Value> results;
  for (const Value& item : Iterate(runtime, input)) {
    results.push_back(ApplyFilter(runtime, arguments.positional[0].text(), item, rest));
    if (runtime.failed()) return Value();
  }
  return runtime.MakeGenerator(std::move(results));
}

// Keeps the items whose (attribute's) test, or truth without one, is `keep`.
template <bool by_attribute, bool keep>
Value Filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  constexpr size_t kTest = by_attribute ? 1 : 0;
  if (!input.Truthy()) return runtime.MakeGenerator({});
  if (by_attribute && arguments.positional.empty()) {
    return runtime.Fail("Missing parameter for attribute name");
  }
  const bool has_test = arguments.positional.size() > kTest;
  if (has_test && !arguments.positional[kTest].IsString()) {
    return runtime.Fail("the name of a test must be a string");
  }
  const Arguments rest = has_test ? WithoutFirst(arguments, kTest + 1) : Arguments{};
  std::vector<Value> kept;
  for (const Value& item : Iterate(runtime, input)) {
    const Value subject = by_attribute ? GetPath(runtime, item, arguments.positional[0]) : item;
    const bool passes = has_test
                            ? ApplyTest(runtime, arguments.positional[kTest].text(), subject, rest)
                            : subject.Truthy();
    if (runtime.failed()) return Value();
    if (passes == keep) kept.push_back(item);
  }
  return runtime.MakeGenerator(std::move(kept));
}

}  // namespace

Method FindSelectionFilter(std::string_view name) {
  static const auto* const kFilters = new std::unordered_map<std::string_view, Method>{
      {"map", Map},
      {"select", Filter<false, true>},
      {"reject", Filter<false, false>},
      {"selectattr", Filter<true, true>},
      {"rejectattr", Filter<true, false>},
  };
  const auto it = kFilters->find(name);
  return it == kFilters->end() ? nullptr : it->second;
}

}  // namespace skein::engine::chat_template
