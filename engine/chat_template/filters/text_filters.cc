// trim, upper, replace, indent, ...: they take str(input).
#include <algorithm>
#include <unordered_map>

#include "engine/chat_template/filters/filters.h"
#include "engine/chat_template/methods/string_split.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

template <std::string (*Transform)(std::string_view)>
Value Mapped(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "this filter", arguments, {}, 0);
  return runtime.MakeString(Transform(ToText(runtime, input)));
}

bool StartsWord(char32_t c) {
  return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

// Words begin after white space and brackets, not after apostrophes as in str.title().
std::string TitleWords(std::string_view s) {
  std::string out;
  bool begins = true;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = CodePointAt(s, i);
    const std::string_view one = s.substr(i, c.bytes);
    out += begins ? Upper(one) : Lower(one);
    begins = StartsWord(c.value);
    i += c.bytes;
  }
  return out;
}

std::string EscapeHtml(std::string_view s) {
  std::string out;
  for (char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string Same(std::string_view s) { return std::string(s); }

Value Trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "trim", arguments, {"chars"}, 0);
  const std::string chars = bound.TextOr(0, "");
  const std::string_view view = chars;
  const std::string_view* const set = bound.Given(0) ? &view : nullptr;
  const std::string text = ToText(runtime, input);
  if (!runtime.Charge(1 + chars.size() * text.size() / 64)) return Value();
  return runtime.MakeString(std::string(StripLeft(StripRight(text, set), set)));
}

Value Replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  if (runtime.failed()) return Value();
  const std::string text = ToText(runtime, input);
  const Int count = bound.IntOr(2, -1);
  return ReplaceText(runtime, text, ToText(runtime, bound[0]), ToText(runtime, bound[1]), count);
}

// The lines joined by a newline and the indention; empty lines get none unless `blank`.
std::string IndentLines(Runtime& runtime, const std::string& text, const std::string& indention,
                        bool first, bool blank) {
  std::string out = first ? indention : "";
  bool is_first = true;
  const std::string with_newline = text + "\n";
  for (std::string_view line : SplitLines(with_newline, false)) {
    if (!runtime.ChargeBytes(line.size() + indention.size() + 1)) return "";
    if (out.size() > runtime.limits().output_bytes_max) break;
    if (!is_first) {
      out += "\n";
      if (blank || !line.empty()) out += indention;
    }
    is_first = false;
    out += line;
  }
  return out;
}

Value Indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "indent", arguments, {"width", "first", "blank"}, 0);
  if (runtime.failed()) return Value();
  if (!input.IsString() && !input.IsUndefined()) return runtime.Fail("indent takes a string");
  std::string indention;
  if (bound.Given(0) && bound[0].IsString()) {
    indention = std::string(bound[0].text());
  } else {
    const Int width = bound.IntOr(0, 4);
    if (width > 1000) return runtime.Fail("an indent that is too wide");
    indention.assign(width > 0 ? static_cast<size_t>(width) : 0, ' ');
  }
  return runtime.MakeString(IndentLines(runtime, ToText(runtime, input), indention,
                                        bound.Truthy(1, false), bound.Truthy(2, false)));
}

Value Center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "center", arguments, {"width"}, 0);
  Arguments width;
  width.positional.emplace_back(bound.IntOr(0, 80));
  const Value text(ToText(runtime, input));
  return runtime.failed() ? Value() : FindStringMethod("center")(runtime, text, width);
}

// The first `count` code points.
std::string_view Head(std::string_view s, Int count) {
  size_t i = 0;
  for (; i < s.size() && count > 0; --count) i += CodePointAt(s, i).bytes;
  return s.substr(0, i);
}

Value TruncateText(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "truncate", arguments,
                             {"length", "killwords", "end", "leeway"}, 0);
  const Int length = bound.IntOr(0, 255);
  const std::string end = bound.TextOr(2, "...");
  const Int leeway = bound.IntOr(3, 5);
  const std::string text = ToText(runtime, input);
  if (runtime.failed() || !runtime.ChargeBytes(text.size())) return Value();
  const auto end_length = static_cast<Int>(CodePointCount(end));
  if (length < end_length || leeway < 0) return runtime.Fail("truncate: a bad length");
  if (static_cast<Int>(CodePointCount(text)) <= length + leeway) return Value(text);
  std::string_view head = Head(text, length - end_length);
  if (!bound.Truthy(1, false)) {
    const size_t space = head.rfind(' ');
    if (space != std::string_view::npos) head = head.substr(0, space);
  }
  return runtime.MakeString(std::string(head) + end);
}

Value WordCount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  BoundArguments(runtime, "wordcount", arguments, {}, 0);
  const std::string text = ToText(runtime, input);
  if (!runtime.ChargeBytes(text.size())) return Value();
  size_t count = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    const bool part = c.value == '_' || IsAlnum(c.value);
    count += part && !in_word ? 1 : 0;
    in_word = part;
    i += c.bytes;
  }
  return count;
}

Value Format(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const std::string format = ToText(runtime, input);
  if (arguments.named.empty()) {
    return FormatPercent(runtime, format, runtime.MakeTuple(arguments.positional));
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : arguments.named) {
    runtime.SetItem(*dict, Value(name), value);
  }
  return FormatPercent(runtime, format, Value(std::move(dict)));
}

}  // namespace

Method FindTextFilter(std::string_view name) {
  static const auto* const kFilters = new std::unordered_map<std::string_view, Method>{
      {"upper", Mapped<Upper>},
      {"lower", Mapped<Lower>},
      {"capitalize", Mapped<Capitalize>},
      {"title", Mapped<TitleWords>},
      {"string", Mapped<Same>},
      {"safe", Mapped<Same>},
      {"escape", Mapped<EscapeHtml>},
      {"e", Mapped<EscapeHtml>},
      {"forceescape", Mapped<EscapeHtml>},
      {"trim", Trim},
      {"replace", Replace},
      {"indent", Indent},
      {"center", Center},
      {"truncate", TruncateText},
      {"wordcount", WordCount},
      {"format", Format},
  };
  const auto it = kFilters->find(name);
  return it == kFilters->end() ? nullptr : it->second;
}

}  // namespace skein::engine::chat_template
