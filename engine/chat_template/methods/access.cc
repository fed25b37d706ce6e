#include "engine/chat_template/methods/access.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/methods/methods.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/values/literals.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

std::string TypeForMessage(const Value& object) {
  return object.IsNone() ? "None" : std::string(object.TypeName()) + " object";
}

Value NoAttribute(const Value& object, std::string_view name) {
  return Value::Undefined(
      absl::StrCat("'", TypeForMessage(object), "' has no attribute '", std::string(name), "'"));
}

Value NoElement(Runtime& runtime, const Value& object, const Value& key) {
  if (key.IsString()) return NoAttribute(object, key.text());
  return Value::Undefined(
      absl::StrCat(TypeForMessage(object), " has no element ", ToRepr(runtime, key)));
}

// An attribute proper: a member of an object or a method.
bool FindAttribute(Runtime& runtime, const Value& object, std::string_view name, Value* out) {
  if (object.IsObject()) return object.object().Get(runtime, name, out);
  if (IsUnsafeMethod(object, name)) {
    *out = Value::Undefined(absl::StrCat("access to attribute '", std::string(name), "' of '",
                                         std::string(object.TypeName()), "' object is unsafe."));
    return true;
  }
  return BindMethod(object, name, out);
}

const Value* FindItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.IsDict()) {
    if (!key.IsString() && !runtime.Charge(object.dict().size())) return nullptr;
    return object.dict().Find(key);
  }
  Int index = 0;
  if (!object.IsSequence() || !key.AsInt(&index)) return nullptr;
  const SequenceKind kind = object.sequence().kind;
  if (kind == SequenceKind::kView || kind == SequenceKind::kGenerator) return nullptr;
  const auto& items = object.sequence().items;
  if (index < 0) index += static_cast<Int>(items.size());
  if (index < 0 || index >= static_cast<Int>(items.size())) return nullptr;
  return &items[static_cast<size_t>(index)];
}

// The character of a string at an index; false outside of it.
bool FindCharacter(Runtime& runtime, std::string_view text, const Value& key, Value* out) {
  Int index = 0;
  if (!key.AsInt(&index) || !runtime.Charge(1 + text.size() / 64)) return false;
  const auto count = static_cast<Int>(IsAscii(text) ? text.size() : CodePointCount(text));
  if (index < 0) index += count;
  if (index < 0 || index >= count) return false;
  size_t at = 0;
  for (Int i = 0; i < index; ++i) at += CodePointAt(text, at).bytes;
  *out = Value(text.substr(at, CodePointAt(text, at).bytes));
  return true;
}

// Python's slice indices for a sequence of `count` items.
struct Range {
  Int start;
  Int stop;
  Int step;
};

Int Clamp(const Value& given, Int otherwise, Int count, Int low, Int high) {
  Int index = 0;
  if (!given.AsInt(&index)) return otherwise;
  if (index < 0) index = index < -count ? low : index + count;
  return std::clamp(index, low, high);
}

Range Resolve(const Value& start, const Value& stop, Int step, Int count) {
  if (step > 0)
    return {Clamp(start, 0, count, 0, count), Clamp(stop, count, count, 0, count), step};
  return {Clamp(start, count - 1, count, -1, count - 1), Clamp(stop, -1, count, -1, count - 1),
          step};
}

template <typename T>
std::vector<T> Pick(const std::vector<T>& items, const Range& r) {
  std::vector<T> picked;
  // Past the range, the next index could overflow; count - 1 steps at most are inside.
  for (Int i = r.start; r.step > 0 ? i < r.stop : i > r.stop;) {
    picked.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, r.step, &i)) break;
  }
  return picked;
}

bool IsIndex(const Value& v) { return v.IsNone() || v.IsInt() || v.IsBool(); }

Value SliceText(Runtime& runtime, std::string_view text, const Value& start, const Value& stop,
                Int step) {
  if (!runtime.ChargeBytes(text.size())) return Value();
  if (step == 1 && IsAscii(text)) {
    const Range r = Resolve(start, stop, step, static_cast<Int>(text.size()));
    const auto from = static_cast<size_t>(r.start);
    return r.stop <= r.start ? Value("")
                             : Value(text.substr(from, static_cast<size_t>(r.stop) - from));
  }
  const auto points = SplitCodePoints(text);
  const Range r = Resolve(start, stop, step, static_cast<Int>(points.size()));
  std::string out;
  for (std::string_view c : Pick(points, r)) out += c;
  return Value(std::move(out));
}

}  // namespace

Value GetAttributeOf(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.IsUndefined()) return runtime.FailUndefined(object);
  Value out;
  if (FindAttribute(runtime, object, name, &out)) return out;
  if (object.IsDict()) {
    if (const Value* item = object.dict().Find(name)) return *item;
  }
  return NoAttribute(object, name);
}

Value GetItemOf(Runtime& runtime, const Value& object, const Value& key) {
  if (object.IsUndefined()) return runtime.FailUndefined(object);
  if (const Value* item = FindItem(runtime, object, key)) return *item;
  Value out;
  if (object.IsString() && FindCharacter(runtime, object.text(), key, &out)) return out;
  if (key.IsString() && FindAttribute(runtime, object, key.text(), &out)) return out;
  return NoElement(runtime, object, key);
}

Value SliceOf(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
              const Value& step) {
  if (object.IsUndefined()) return runtime.FailUndefined(object);
  Int by = 1;
  if (!IsIndex(start) || !IsIndex(stop) || !IsIndex(step)) {
    return NoElement(runtime, object, Value("slice"));
  }
  if (step.AsInt(&by) && by == 0) return runtime.Fail("slice step cannot be zero");
  if (object.IsString()) return SliceText(runtime, object.text(), start, stop, by);
  const bool sliceable = object.IsSequence() && !object.IsSequence(SequenceKind::kView) &&
                         !object.IsSequence(SequenceKind::kGenerator);
  if (!sliceable) return NoElement(runtime, object, Value("slice"));
  const auto& items = object.sequence().items;
  if (!runtime.Charge(items.size())) return Value();
  const Range r = Resolve(start, stop, by, static_cast<Int>(items.size()));
  return runtime.MakeSequence(object.sequence().kind, Pick(items, r));
}

Value GetPath(Runtime& runtime, const Value& object, const Value& path) {
  if (!path.IsString()) return GetItemOf(runtime, object, path);
  Value value = object;
  std::string_view rest = path.text();
  while (!runtime.failed()) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const auto index = digits ? ParseInt(part, 10) : std::nullopt;
    value = GetItemOf(runtime, value, index ? Value(*index) : Value(part));
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  return value;
}

}  // namespace skein::engine::chat_template
