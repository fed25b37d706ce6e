// length, first, last, list, items, join, sum, reverse, batch, slice, attr; and what ordering.h
// has.
#include <algorithm>
#include <unordered_map>

#include "engine/chat_template/filters/filters.h"
#include "engine/chat_template/filters/ordering.h"
#include "engine/chat_template/methods/access.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {
namespace {

Value LengthFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "length", arguments, {}, 0);
  return Length(runtime, input);
}

Value First(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "first", arguments, {}, 0);
  if (input.IsString() && !input.text().empty()) return GetItemOf(runtime, input, 0);
  if (input.IsSequence() && !input.sequence().items.empty()) {
    auto& items = input.sequence().items;
    Value first = items[0];
    if (input.IsSequence(SequenceKind::kGenerator)) items.erase(items.begin());
    return first;
  }
  const auto items = Iterate(runtime, input);
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items[0];
}

Value Last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "last", arguments, {}, 0);
  if (input.IsSequence(SequenceKind::kGenerator)) {
    return runtime.Fail("'generator' object is not reversible");
  }
  if (input.IsString() && !input.text().empty()) return GetItemOf(runtime, input, -1);
  if (input.IsSequence() && !input.sequence().items.empty()) return input.sequence().items.back();
  const auto items = Iterate(runtime, input);
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Value ToList(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "list", arguments, {}, 0);
  return runtime.MakeList(Iterate(runtime, input));
}

Value Items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "items", arguments, {}, 0);
  if (input.IsUndefined()) return runtime.MakeGenerator({});
  if (!input.IsDict()) return runtime.Fail("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, value] : input.dict().entries()) {
    items.push_back(runtime.MakeTuple({key, value}));
    if (runtime.failed()) return Value();
  }
  return runtime.MakeGenerator(std::move(items));
}

Value Join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "join", arguments, {"d", "attribute"}, 0);
  const std::string separator = bound.Passed(0) ? ToText(runtime, bound[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : Iterate(runtime, input)) {
    const Value part = bound.Given(1) ? GetPath(runtime, item, bound[1]) : item;
    if (!first) out += separator;
    first = false;
    out += ToText(runtime, part);
    if (!runtime.ChargeBytes(separator.size()) || out.size() > runtime.limits().output_bytes_max) {
      break;
    }
  }
  return runtime.MakeString(std::move(out));
}

Value Sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "sum", arguments, {"attribute", "start"}, 0);
  Value total = bound.ValueOr(1, 0);
  for (const Value& item : Iterate(runtime, input)) {
    const Value part = bound.Given(0) ? GetPath(runtime, item, bound[0]) : item;
    total = ApplyBinary(runtime, BinaryOperator::kAdd, total, part);
    if (runtime.failed()) return Value();
  }
  return total;
}

Value Reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "reverse", arguments, {}, 0);
  if (input.IsString()) return SliceOf(runtime, input, NoneType{}, NoneType{}, -1);
  auto items = Iterate(runtime, input);
  std::reverse(items.begin(), items.end());
  return runtime.MakeGenerator(std::move(items));
}

Value Batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "batch", arguments, {"linecount", "fill_with"}, 1);
  const Int size = bound.IntOr(0, 1);
  if (runtime.failed()) return Value();
  if (size < 1 || size > 100'000) return runtime.Fail("batch: a bad size");
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : Iterate(runtime, input)) {
    batch.push_back(std::move(item));
    if (static_cast<Int>(batch.size()) < size) continue;
    batches.push_back(runtime.MakeList(std::move(batch)));
    batch.clear();
  }
  if (!batch.empty()) {
    if (bound.Given(1)) batch.resize(static_cast<size_t>(size), bound[1]);
    batches.push_back(runtime.MakeList(std::move(batch)));
  }
  return runtime.MakeGenerator(std::move(batches));
}

Value SliceFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "slice", arguments, {"slices", "fill_with"}, 1);
  const Int slices = bound.IntOr(0, 1);
  if (runtime.failed()) return Value();
  if (slices < 1 || slices > 100'000) return runtime.Fail("slice: a bad number of slices");
  const auto items = Iterate(runtime, input);
  const auto count = static_cast<size_t>(slices);
  const size_t each = items.size() / count;
  const size_t longer = items.size() % count;
  std::vector<Value> result;
  auto next = items.begin();
  for (size_t i = 0; i < count && !runtime.failed(); ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<Value> slice(next, end);
    if (bound.Given(1) && i >= longer && longer > 0) slice.push_back(bound[1]);
    result.push_back(runtime.MakeList(std::move(slice)));
    next = end;
  }
  return runtime.MakeGenerator(std::move(result));
}

Value Attribute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "attr", arguments, {"name"}, 1);
  const std::string name = bound.TextOr(0, "");
  if (runtime.failed()) return Value();
  if (input.IsDict() && FindMethod(input, name) == nullptr) {
    return Value::Undefined("'dict object' has no attribute '" + name + "'");
  }
  return GetAttributeOf(runtime, input, name);
}

}  // namespace

Method FindSequenceFilter(std::string_view name) {
  static const auto* const kFilters = new std::unordered_map<std::string_view, Method>{
      {"length", LengthFilter}, {"count", LengthFilter},
      {"first", First},         {"last", Last},
      {"list", ToList},         {"items", Items},
      {"join", Join},           {"sum", Sum},
      {"reverse", Reverse},     {"batch", Batch},
      {"slice", SliceFilter},   {"attr", Attribute},
      {"sort", SortFilter},     {"dictsort", DictSortFilter},
      {"unique", UniqueFilter}, {"min", MinFilter},
      {"max", MaxFilter},       {"groupby", GroupByFilter},
  };
  const auto it = kFilters->find(name);
  return it == kFilters->end() ? nullptr : it->second;
}

}  // namespace skein::engine::chat_template
