#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/methods/methods.h"
#include "engine/chat_template/methods/string_split.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/operations/operators.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

// Text to text, no argument.
template <std::string (*Transform)(std::string_view)>
Value Mapped(Runtime& runtime, const Value& self, const Arguments& arguments) {
  BoundArguments(runtime, "this method", arguments, {}, 0);
  if (!runtime.ChargeBytes(self.text().size())) return Value();
  return Value(Transform(self.text()));
}

enum class Side { kLeft, kRight, kBoth };

template <Side side>
Value Strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "strip", arguments, {"chars"}, 0);
  const std::string chars = bound.TextOr(0, "");
  const std::string_view chars_view = chars;
  const std::string_view* const set = bound.Given(0) ? &chars_view : nullptr;
  if (!runtime.Charge(1 + chars.size() * self.text().size() / 64)) return Value();
  std::string_view text = self.text();
  if (side != Side::kRight) text = StripLeft(text, set);
  if (side != Side::kLeft) text = StripRight(text, set);
  return text.size() == self.text().size() ? self : runtime.MakeString(std::string(text));
}

// The part of the text between the code points `start` and `end` of a call.
struct Window {
  std::string_view text;
  size_t first_point = 0;
  bool valid = false;  // a start past the end finds nothing, not even ""
};

Window MakeWindow(Runtime& runtime, std::string_view text, const BoundArguments& bound) {
  if (!runtime.Charge(1 + text.size() / 64)) return {};
  if (!bound.Given(1) && !bound.Given(2)) return {text, 0, true};
  const auto points = SplitCodePoints(text);
  const auto count = static_cast<Int>(points.size());
  const auto clamp = [&](Int i) { return std::clamp<Int>(i < 0 ? i + count : i, 0, count); };
  if (bound.IntOr(1, 0) > count) return {};
  const Int start = clamp(bound.IntOr(1, 0));
  const Int end = clamp(bound.IntOr(2, count));
  if (start > end) return {};
  const auto offset = [&](Int i) {
    return i == count ? text.size()
                      : static_cast<size_t>(points[static_cast<size_t>(i)].data() - text.data());
  };
  return {text.substr(offset(start), offset(end) - offset(start)), static_cast<size_t>(start),
          true};
}

enum class Edge { kStart, kEnd };

template <Edge edge>
Value HasAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, edge == Edge::kStart ? "startswith" : "endswith", arguments,
                             {"prefix", "start", "end"}, 1);
  if (runtime.failed()) return Value();
  const Window window = MakeWindow(runtime, self.text(), bound);
  const std::vector<Value> candidates = bound[0].IsSequence(SequenceKind::kTuple)
                                            ? bound[0].sequence().items
                                            : std::vector<Value>{bound[0]};
  for (const Value& candidate : candidates) {
    if (candidate.IsUndefined()) return runtime.FailUndefined(candidate);
    if (!candidate.IsString()) {
      return runtime.Fail(absl::StrCat(edge == Edge::kStart ? "startswith" : "endswith",
                                       " first arg must be str or a tuple of str, not ",
                                       std::string(candidate.TypeName())));
    }
    const std::string_view affix = candidate.text();
    if (!window.valid || affix.size() > window.text.size()) continue;
    const size_t at = edge == Edge::kStart ? 0 : window.text.size() - affix.size();
    if (window.text.substr(at, affix.size()) == affix) return true;
  }
  return false;
}

template <bool last, bool must_exist>
Value FindText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "find", arguments, {"sub", "start", "end"}, 1);
  const std::string needle = bound.TextOr(0, "");
  if (runtime.failed()) return Value();
  const Window window = MakeWindow(runtime, self.text(), bound);
  size_t at = std::string_view::npos;
  if (window.valid) {
    at = last ? FindLast(runtime, window.text, needle) : Find(window.text, needle);
  }
  if (at != std::string_view::npos) {
    return window.first_point + CodePointCount(window.text.substr(0, at));
  }
  return must_exist ? runtime.Fail("substring not found") : Value(-1);
}

Value Count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "count", arguments, {"sub", "start", "end"}, 1);
  const std::string needle = bound.TextOr(0, "");
  if (runtime.failed()) return Value();
  const Window window = MakeWindow(runtime, self.text(), bound);
  if (!window.valid) return 0;
  if (needle.empty()) return CodePointCount(window.text) + 1;
  size_t count = 0;
  for (size_t at = Find(window.text, needle); at != std::string_view::npos;
       at = Find(window.text, needle, at + needle.size())) {
    ++count;
  }
  return count;
}

Value Replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  const std::string old = bound.TextOr(0, "");
  const std::string with = bound.TextOr(1, "");
  const Int count = bound.IntOr(2, -1);
  return runtime.failed() ? Value() : ReplaceText(runtime, self.text(), old, with, count);
}

Value Join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "join", arguments, {"iterable"}, 1);
  if (runtime.failed()) return Value();
  std::string out;
  const std::vector<Value> items = Iterate(runtime, bound[0]);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsString()) {
      return runtime.Fail(absl::StrCat("sequence item ", i, ": expected str instance, ",
                                       std::string(items[i].TypeName()), " found"));
    }
    if (!runtime.ChargeBytes(out.size() / 1024 + items[i].text().size() + self.text().size())) {
      return Value();
    }
    if (i > 0) out += self.text();
    out += items[i].text();
    if (out.size() > runtime.limits().output_bytes_max) break;
  }
  return runtime.MakeString(std::move(out));
}

template <Edge edge>
Value RemoveAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "removeprefix", arguments, {"prefix"}, 1);
  const std::string affix = bound.TextOr(0, "");
  const std::string_view text = self.text();
  if (runtime.failed() || affix.size() > text.size()) return self;
  const size_t at = edge == Edge::kStart ? 0 : text.size() - affix.size();
  if (text.substr(at, affix.size()) != affix) return self;
  const size_t from = edge == Edge::kStart ? affix.size() : 0;
  return runtime.MakeString(std::string(text.substr(from, text.size() - affix.size())));
}

template <Side side>
Value Justify(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "just", arguments, {"width", "fillchar"}, 1);
  const Int width = bound.IntOr(0, 0);
  const std::string fill = bound.TextOr(1, " ");
  if (runtime.failed()) return Value();
  if (CodePointCount(fill) != 1) {
    return runtime.Fail("The fill character must be exactly one character long");
  }
  const auto count = static_cast<Int>(CodePointCount(self.text()));
  if (width <= count) return self;
  if (width > static_cast<Int>(runtime.limits().output_bytes_max) / 4 ||
      !runtime.ChargeBytes(static_cast<size_t>(width) * fill.size() + self.text().size())) {
    return runtime.Fail("the template makes too long a text");
  }
  const Int pad = width - count;
  Int left = side == Side::kRight ? pad : 0;
  // str.center puts the odd one as CPython does.
  if (side == Side::kBoth) left = pad / 2 + (pad & width & 1);
  std::string out;
  for (Int i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (Int i = left; i < pad; ++i) out += fill;
  return Value(std::move(out));
}

Value ZeroFill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Arguments padding = arguments;
  padding.positional.resize(std::min<size_t>(1, padding.positional.size()));
  padding.positional.emplace_back("0");
  const std::string_view text = self.text();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  if (!sign) return Justify<Side::kRight>(runtime, self, padding);
  Int width = 0;
  if (!padding.positional[0].AsInt(&width)) return runtime.Fail("zfill() takes an integer");
  padding.positional[0] = Value(width - 1);
  const Value rest = Justify<Side::kRight>(runtime, Value(text.substr(1)), padding);
  return runtime.failed() ? Value() : Value(std::string(1, text[0]) + std::string(rest.text()));
}

// True for a text that is not empty and whose code points all pass.
template <bool (*Test)(char32_t)>
Value All(Runtime& runtime, const Value& self, const Arguments& arguments) {
  BoundArguments(runtime, "this method", arguments, {}, 0);
  const std::string_view text = self.text();
  if (!runtime.Charge(1 + text.size() / 64)) return Value();
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    if (!Test(c.value)) return false;
    i += c.bytes;
  }
  return !text.empty();
}

// str.islower and isupper: at least one cased letter, none of the other case.
template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Value IsCase(Runtime& runtime, const Value& self, const Arguments& arguments) {
  BoundArguments(runtime, "this method", arguments, {}, 0);
  const std::string_view text = self.text();
  if (!runtime.Charge(1 + text.size() / 64)) return Value();
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    if (Other(c.value)) return false;
    found |= Wanted(c.value);
    i += c.bytes;
  }
  return found;
}

Value IsTextAscii(Runtime& runtime, const Value& self, const Arguments& arguments) {
  BoundArguments(runtime, "isascii", arguments, {}, 0);
  return IsAscii(self.text());
}

Value Format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

}  // namespace

Method FindStringMethod(std::string_view name) {
  static const auto* const kMethods = new std::unordered_map<std::string_view, Method>{
      {"strip", Strip<Side::kBoth>},
      {"lstrip", Strip<Side::kLeft>},
      {"rstrip", Strip<Side::kRight>},
      {"split", StringSplit},
      {"rsplit", StringRightSplit},
      {"splitlines", StringSplitLines},
      {"partition", StringPartition},
      {"rpartition", StringRightPartition},
      {"startswith", HasAffix<Edge::kStart>},
      {"endswith", HasAffix<Edge::kEnd>},
      {"find", FindText<false, false>},
      {"rfind", FindText<true, false>},
      {"index", FindText<false, true>},
      {"rindex", FindText<true, true>},
      {"count", Count},
      {"replace", Replace},
      {"join", Join},
      {"removeprefix", RemoveAffix<Edge::kStart>},
      {"removesuffix", RemoveAffix<Edge::kEnd>},
      {"lower", Mapped<Lower>},
      {"casefold", Mapped<Lower>},
      {"upper", Mapped<Upper>},
      {"title", Mapped<Title>},
      {"capitalize", Mapped<Capitalize>},
      {"swapcase", Mapped<SwapCase>},
      {"ljust", Justify<Side::kLeft>},
      {"rjust", Justify<Side::kRight>},
      {"center", Justify<Side::kBoth>},
      {"zfill", ZeroFill},
      {"isspace", All<IsSpace>},
      {"isalpha", All<IsAlpha>},
      {"isalnum", All<IsAlnum>},
      {"isdigit", All<IsDigit>},
      {"isdecimal", All<IsDigit>},
      {"isnumeric", All<IsDigit>},
      {"islower", IsCase<IsLower, IsUpper>},
      {"isupper", IsCase<IsUpper, IsLower>},
      {"isascii", IsTextAscii},
      {"format", Format},
  };
  const auto it = kMethods->find(name);
  return it == kMethods->end() ? nullptr : it->second;
}

}  // namespace skein::engine::chat_template
