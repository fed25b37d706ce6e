#include "engine/chat_template/methods/string_split.h"

#include <algorithm>

#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

using Views = std::vector<std::string_view>;

size_t SpaceLength(std::string_view s) { return s.size() - StripLeft(s).size(); }

size_t WordLength(std::string_view s) {
  size_t i = 0;
  while (i < s.size()) {
    const CodePoint c = CodePointAt(s, i);
    if (IsSpace(c.value)) break;
    i += c.bytes;
  }
  return i;
}

Views SplitSpace(std::string_view s, Int splits) {
  Views parts;
  s.remove_prefix(SpaceLength(s));
  while (!s.empty()) {
    if (splits >= 0 && static_cast<Int>(parts.size()) == splits) {
      parts.push_back(s);
      break;
    }
    const size_t word = WordLength(s);
    parts.push_back(s.substr(0, word));
    s.remove_prefix(word);
    s.remove_prefix(SpaceLength(s));
  }
  return parts;
}

size_t LastWordLength(std::string_view s) {
  size_t end = s.size();
  while (end > 0) {
    const CodePoint c = CodePointBefore(s, end);
    if (IsSpace(c.value)) break;
    end -= c.bytes;
  }
  return s.size() - end;
}

Views RightSplitSpace(std::string_view s, Int splits) {
  Views parts;
  s = StripRight(s);
  while (!s.empty()) {
    if (splits >= 0 && static_cast<Int>(parts.size()) == splits) {
      parts.push_back(s);
      break;
    }
    const size_t word = LastWordLength(s);
    parts.push_back(s.substr(s.size() - word));
    s = StripRight(s.substr(0, s.size() - word));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Views SplitBy(std::string_view s, std::string_view separator, Int splits) {
  Views parts;
  size_t from = 0;
  while (splits < 0 || static_cast<Int>(parts.size()) < splits) {
    const size_t at = Find(s, separator, from);
    if (at == std::string_view::npos) break;
    parts.push_back(s.substr(from, at - from));
    from = at + separator.size();
  }
  parts.push_back(s.substr(from));
  return parts;
}

Views RightSplitBy(Runtime& runtime, std::string_view s, std::string_view separator, Int splits) {
  Views parts;
  while (!runtime.failed() && (splits < 0 || static_cast<Int>(parts.size()) < splits)) {
    const size_t at = FindLast(runtime, s, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(s.substr(at + separator.size()));
    s = s.substr(0, at);
  }
  parts.push_back(s);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value ToList(Runtime& runtime, const Views& parts) {
  if (!runtime.Charge(parts.size())) return Value();
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.emplace_back(part);
  return runtime.MakeList(std::move(items));
}

Value Split(Runtime& runtime, const Value& self, const Arguments& arguments, bool from_right) {
  const BoundArguments bound(runtime, "split", arguments, {"sep", "maxsplit"}, 0);
  const Int splits = bound.IntOr(1, -1);
  const std::string separator = bound.TextOr(0, "");
  const std::string_view text = self.text();
  if (runtime.failed() || !runtime.ChargeBytes(text.size())) return Value();
  if (!bound.Given(0)) {
    return ToList(runtime, from_right ? RightSplitSpace(text, splits) : SplitSpace(text, splits));
  }
  if (separator.empty()) return runtime.Fail("empty separator");
  return ToList(runtime, from_right ? RightSplitBy(runtime, text, separator, splits)
                                    : SplitBy(text, separator, splits));
}

Value Partition(Runtime& runtime, const Value& self, const Arguments& arguments, bool from_right) {
  const BoundArguments bound(runtime, "partition", arguments, {"sep"}, 1);
  const std::string separator = bound.TextOr(0, "");
  if (runtime.failed()) return Value();
  if (separator.empty()) return runtime.Fail("empty separator");
  const std::string_view text = self.text();
  if (!runtime.ChargeBytes(text.size())) return Value();
  const size_t at = from_right ? FindLast(runtime, text, separator) : Find(text, separator);
  if (at == std::string_view::npos) {
    if (from_right) return runtime.MakeTuple({Value(""), Value(""), self});
    return runtime.MakeTuple({self, Value(""), Value("")});
  }
  return runtime.MakeTuple(
      {Value(text.substr(0, at)), Value(separator), Value(text.substr(at + separator.size()))});
}

}  // namespace

size_t FindLast(Runtime& runtime, std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  for (size_t at = text.size() - needle.size() + 1; at-- > 0;) {
    if (!needle.empty() && text[at] != needle[0]) continue;
    if (!runtime.Charge(1 + needle.size() / 64)) break;
    if (text.substr(at, needle.size()) == needle) return at;
  }
  return std::string_view::npos;
}

Value StringSplit(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Split(runtime, self, arguments, false);
}

Value StringRightSplit(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Split(runtime, self, arguments, true);
}

Value StringSplitLines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(runtime, "splitlines", arguments, {"keepends"}, 0);
  if (runtime.failed() || !runtime.ChargeBytes(self.text().size())) return Value();
  return ToList(runtime, SplitLines(self.text(), bound.Truthy(0, false)));
}

Value StringPartition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Partition(runtime, self, arguments, false);
}

Value StringRightPartition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Partition(runtime, self, arguments, true);
}

Value ReplaceText(Runtime& runtime, std::string_view text, std::string_view old,
                  std::string_view with, Int count) {
  std::string out;
  size_t from = 0;
  Int done = 0;
  while ((count < 0 || done < count) && from <= text.size()) {
    const size_t at = Find(text, old, from);
    if (at == std::string_view::npos) break;
    // An empty text is found before every character and at the end.
    const size_t step = old.empty() && at < text.size() ? CodePointAt(text, at).bytes : 0;
    out.append(text.substr(from, at - from)).append(with).append(text.substr(at, step));
    from = at + (old.empty() ? std::max<size_t>(1, step) : old.size());
    ++done;
    if (!runtime.ChargeBytes(with.size()) || out.size() > runtime.limits().output_bytes_max) {
      return runtime.Fail("the template makes too long a text");
    }
  }
  if (from < text.size()) out.append(text.substr(from));
  return runtime.MakeString(std::move(out));
}

}  // namespace skein::engine::chat_template
