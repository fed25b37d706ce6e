#include "engine/chat_template/filters/ordering.h"

#include <algorithm>

#include "engine/chat_template/methods/access.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/operators.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

struct Keyed {
  Value key;
  Value value;
};

Value Fold(Runtime& runtime, const Value& key, bool case_sensitive) {
  return case_sensitive || !key.IsString() ? key : runtime.MakeString(Lower(key.text()));
}

// The key of an item: itself, or what is at the path.
Value KeyOf(Runtime& runtime, const Value& item, const Value& path, bool case_sensitive) {
  const Value key = path.IsNone() ? item : GetPath(runtime, item, path);
  return Fold(runtime, key, case_sensitive);
}

// The same for several paths between commas: a list of keys.
Value KeysOf(Runtime& runtime, const Value& item, const Value& paths, bool case_sensitive) {
  if (!paths.IsString()) {
    return runtime.MakeList({KeyOf(runtime, item, paths, case_sensitive)});
  }
  std::vector<Value> keys;
  std::string_view rest = paths.text();
  while (true) {
    const size_t comma = rest.find(',');
    keys.push_back(KeyOf(runtime, item, Value(rest.substr(0, comma)), case_sensitive));
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  return runtime.MakeList(std::move(keys));
}

std::vector<Keyed> WithKeys(Runtime& runtime, const Value& input, const Value& paths,
                            bool case_sensitive) {
  std::vector<Keyed> items;
  for (Value& item : Iterate(runtime, input)) {
    if (runtime.failed()) break;
    Value key = KeysOf(runtime, item, paths, case_sensitive);
    items.push_back({std::move(key), std::move(item)});
  }
  return items;
}

void Sort(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  if (runtime.failed()) return;
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? Less(runtime, b.key, a.key) : Less(runtime, a.key, b.key);
  });
}

Value Values(Runtime& runtime, std::vector<Keyed> items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (Keyed& item : items) values.push_back(std::move(item.value));
  return runtime.MakeList(std::move(values));
}

Value Extreme(Runtime& runtime, const Value& input, const Arguments& arguments, bool largest) {
  const BoundArguments bound(runtime, largest ? "max" : "min", arguments,
                             {"case_sensitive", "attribute"}, 0);
  const Value path = bound.ValueOr(1, NoneType{});
  const bool case_sensitive = bound.Truthy(0, false);
  Value best;
  Value best_key;
  bool first = true;
  for (Value& item : Iterate(runtime, input)) {
    Value key = KeyOf(runtime, item, path, case_sensitive);
    if (runtime.failed()) return Value();
    const bool better =
        first || (largest ? Less(runtime, best_key, key) : Less(runtime, key, best_key));
    if (better) {
      best = std::move(item);
      best_key = std::move(key);
    }
    first = false;
  }
  return first ? Value::Undefined("No aggregated item, sequence was empty.") : best;
}

}  // namespace

Value SortFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"},
                             0);
  auto items = WithKeys(runtime, input, bound.ValueOr(2, NoneType{}), bound.Truthy(1, false));
  Sort(runtime, items, bound.Truthy(0, false));
  return Values(runtime, std::move(items));
}

Value DictSortFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"},
                             0);
  const std::string by = bound.TextOr(1, "key");
  if (by != "key" && by != "value") {
    return runtime.Fail("You can only sort by either \"key\" or \"value\"");
  }
  if (input.IsUndefined()) return runtime.FailUndefined(input);
  if (!input.IsDict()) return runtime.Fail("dictsort takes a dict");
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries()) {
    items.push_back({Fold(runtime, by == "key" ? key : value, bound.Truthy(0, false)),
                     runtime.MakeTuple({key, value})});
    if (runtime.failed()) return Value();
  }
  Sort(runtime, items, bound.Truthy(2, false));
  return Values(runtime, std::move(items));
}

Value UniqueFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "unique", arguments, {"case_sensitive", "attribute"}, 0);
  const Value path = bound.ValueOr(1, NoneType{});
  const bool case_sensitive = bound.Truthy(0, false);
  std::vector<Value> seen;
  std::vector<Value> items;
  for (Value& item : Iterate(runtime, input)) {
    Value key = KeyOf(runtime, item, path, case_sensitive);
    if (key.IsSequence(SequenceKind::kList) || key.IsDict()) {
      return runtime.Fail("unhashable type: '" + std::string(key.TypeName()) + "'");
    }
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return Equal(runtime, other, key); });
    if (runtime.failed()) return Value();
    if (known) continue;
    seen.push_back(std::move(key));
    items.push_back(std::move(item));
  }
  return runtime.MakeGenerator(std::move(items));
}

Value MinFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return Extreme(runtime, input, arguments, false);
}

Value MaxFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return Extreme(runtime, input, arguments, true);
}

// Pairs of (key, items) in the order of the keys. The pairs have no names for their parts.
Value GroupByFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "groupby", arguments,
                             {"attribute", "default", "case_sensitive"}, 1);
  if (runtime.failed()) return Value();
  const bool case_sensitive = bound.Truthy(2, false);
  std::vector<Keyed> items;
  for (Value& item : Iterate(runtime, input)) {
    Value key = GetPath(runtime, item, bound[0]);
    if (key.IsUndefined() && bound.Passed(1)) key = bound[1];
    items.push_back({Fold(runtime, key, case_sensitive), std::move(item)});
    if (runtime.failed()) return Value();
  }
  Sort(runtime, items, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size() && !runtime.failed();) {
    const Value key = items[i].key;
    const Value first = GetPath(runtime, items[i].value, bound[0]);
    std::vector<Value> members;
    while (i < items.size() && Equal(runtime, items[i].key, key)) {
      members.push_back(std::move(items[i++].value));
    }
    if (members.empty()) break;  // NaN, or no steps left
    const Value shown = first.IsUndefined() ? key : first;
    groups.push_back(runtime.MakeTuple({shown, runtime.MakeList(std::move(members))}));
  }
  return runtime.MakeList(std::move(groups));
}

}  // namespace skein::engine::chat_template
