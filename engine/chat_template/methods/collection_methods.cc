// dict.items, keys, values, get, copy; list and tuple: index, count, copy.
#include <unordered_map>

#include "engine/chat_template/methods/methods.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {
namespace {

Value DictItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  BoundArguments(runtime, "items", arguments, {}, 0);
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) {
    items.push_back(runtime.MakeTuple({key, value}));
    if (runtime.failed()) return Value();
  }
  return runtime.MakeView("dict_items", std::move(items));
}

Value DictKeys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  BoundArguments(runtime, "keys", arguments, {}, 0);
  return runtime.MakeView("dict_keys", Iterate(runtime, self));
}

Value DictValues(Runtime& runtime, const Value& self, const Arguments& arguments) {
  BoundArguments(runtime, "values", arguments, {}, 0);
  std::vector<Value> values;
  for (const auto& entry : self.dict().entries()) values.push_back(entry.second);
  return runtime.MakeView("dict_values", std::move(values));
}

Value DictGet(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "get", arguments, {"key", "default"}, 1);
  if (runtime.failed() || !runtime.Charge(bound[0].IsString() ? 1 : 1 + self.dict().size())) {
    return Value();
  }
  const Value* found = self.dict().Find(bound[0]);
  return found != nullptr ? *found : bound.ValueOr(1, NoneType{});
}

// Values do not change, so a copy is the same.
Value Copy(Runtime&, const Value& self, const Arguments&) { return self; }

Value SequenceIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "index", arguments, {"value"}, 1);
  if (runtime.failed()) return Value();
  const auto& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(runtime, items[i], bound[0])) return i;
  }
  return runtime.Fail("the value is not in the list");
}

Value SequenceCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "count", arguments, {"value"}, 1);
  if (runtime.failed()) return Value();
  size_t count = 0;
  for (const Value& item : self.sequence().items) count += Equal(runtime, item, bound[0]) ? 1 : 0;
  return count;
}

}  // namespace

Method FindCollectionMethod(const Value& receiver, std::string_view name) {
  static const auto* const kDict = new std::unordered_map<std::string_view, Method>{
      {"items", DictItems}, {"keys", DictKeys}, {"values", DictValues},
      {"get", DictGet},     {"copy", Copy},
  };
  static const auto* const kSequence = new std::unordered_map<std::string_view, Method>{
      {"index", SequenceIndex}, {"count", SequenceCount}};
  if (receiver.IsDict()) {
    const auto it = kDict->find(name);
    return it == kDict->end() ? nullptr : it->second;
  }
  const bool list = receiver.IsSequence(SequenceKind::kList);
  if (list && name == "copy") return Copy;
  if (!list && !receiver.IsSequence(SequenceKind::kTuple)) return nullptr;
  const auto it = kSequence->find(name);
  return it == kSequence->end() ? nullptr : it->second;
}

}  // namespace skein::engine::chat_template
