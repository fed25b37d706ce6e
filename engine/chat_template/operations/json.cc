#include "engine/chat_template/operations/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

using Json = nlohmann::ordered_json;

Value Convert(Runtime& runtime, const Json& json, int depth) {
  if (!runtime.Charge(1) || !runtime.CheckDepth(depth)) return Value();
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return Value(static_cast<Int>(json.get<int64_t>()));
    case Json::value_t::number_unsigned:
      return Value(static_cast<Int>(json.get<uint64_t>()));
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return runtime.MakeString(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(Convert(runtime, item, depth + 1));
      return runtime.MakeList(std::move(items));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) {
        runtime.SetItem(*dict, Value(key), Convert(runtime, value, depth + 1));
        if (runtime.failed()) return Value();
      }
      return Value(std::move(dict));
    }
    default:
      return NoneType{};
  }
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  Value Run(const Value& value) {
    Write(value, 0);
    return runtime_.failed() ? Value() : runtime_.MakeString(std::move(out_));
  }

 private:
  void Write(const Value& value, size_t level) {
    if (!runtime_.Charge(1)) return;
    if (out_.size() > runtime_.limits().output_bytes_max) {
      runtime_.Fail("the template makes too long a text");
    } else if (value.IsString()) {
      if (runtime_.ChargeBytes(value.text().size())) WriteString(value.text());
    } else if (value.IsDict()) {
      WriteDict(value.dict(), level);
    } else if (value.IsSequence(SequenceKind::kList) || value.IsSequence(SequenceKind::kTuple)) {
      WriteList(value.sequence().items, level);
    } else if (value.IsNone() || value.IsNumber()) {
      out_ += Scalar(value);
    } else {
      runtime_.Fail(absl::StrCat("Object of type ", std::string(value.TypeName()),
                                 " is not JSON serializable"));
    }
  }

  static std::string Scalar(const Value& value) {
    if (value.IsNone()) return "null";
    if (value.IsBool()) return value.boolean() ? "true" : "false";
    if (value.IsInt()) return FormatInt(value.integer());
    const double real = value.real();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return FormatFloat(real);
  }

  void WriteString(std::string_view text) {
    out_.push_back('"');
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = CodePointAt(text, i);
      if (c.value >= 0x80 && !style_.ascii) {
        out_.append(text.substr(i, c.bytes));
      } else {
        WriteCodePoint(c.value);
      }
      i += c.bytes;
    }
    out_.push_back('"');
  }

  void WriteCodePoint(char32_t c) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kLetters = "\"\\nrtfb";
    const size_t simple = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (simple != std::string_view::npos) {
      out_ += {'\\', kLetters[simple]};
    } else if (c >= 0x20 && c < 0x80) {
      out_.push_back(static_cast<char>(c));
    } else if (c <= 0xffff || c > 0x10ffff) {
      WriteUnit(c & 0xffff);
    } else {
      WriteUnit(0xd800 + ((c - 0x10000) >> 10));
      WriteUnit(0xdc00 + ((c - 0x10000) & 0x3ff));
    }
  }

  void WriteUnit(char32_t unit) {
    char buffer[8];
    std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(unit));
    out_ += buffer;
  }

  void NewLine(size_t level) {
    if (!style_.has_indent) return;
    if (!runtime_.ChargeBytes(level * style_.indent.size())) return;
    out_.push_back('\n');
    for (size_t i = 0; i < level; ++i) out_ += style_.indent;
  }

  void WriteList(const std::vector<Value>& items, size_t level) {
    out_.push_back('[');
    for (size_t i = 0; i < items.size() && !runtime_.failed(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    if (!items.empty()) NewLine(level);
    out_.push_back(']');
  }

  void WriteDict(const Dict& dict, size_t level) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    const auto key_text = [](const Value& key) {
      return key.IsString() ? std::string(key.text()) : Scalar(key);
    };
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return key_text(a->first) < key_text(b->first);
      });
    }
    out_.push_back('{');
    for (size_t i = 0; i < entries.size() && !runtime_.failed(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(level + 1);
      WriteString(key_text(entries[i]->first));
      out_ += style_.key_separator;
      Write(entries[i]->second, level + 1);
    }
    if (!entries.empty()) NewLine(level);
    out_.push_back('}');
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
};

void ReadIndent(Runtime& runtime, const Value& indent, JsonStyle* style) {
  Int spaces = 0;
  style->has_indent = true;
  style->item_separator = ",";
  if (indent.IsString()) {
    style->indent = std::string(indent.text());
  } else if (!indent.AsInt(&spaces) || spaces > 100) {
    runtime.Fail("tojson: a bad indent");
  } else {
    style->indent.assign(spaces > 0 ? static_cast<size_t>(spaces) : 0, ' ');
  }
}

void ReadSeparators(Runtime& runtime, const Value& separators, JsonStyle* style) {
  const bool two = separators.IsSequence() && separators.sequence().items.size() == 2 &&
                   separators.sequence().items[0].IsString() &&
                   separators.sequence().items[1].IsString();
  if (!two) {
    runtime.Fail("tojson: separators are two strings");
    return;
  }
  style->item_separator = std::string(separators.sequence().items[0].text());
  style->key_separator = std::string(separators.sequence().items[1].text());
}

}  // namespace

Value FromJson(Runtime& runtime, const Json& json) { return Convert(runtime, json, 0); }

Value ToJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  return JsonWriter(runtime, style).Run(value);
}

Value ToJsonFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(runtime, "tojson", arguments,
                             {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ascii = bound.Truthy(0, false);
  style.sort_keys = bound.Truthy(3, false);
  if (bound.Given(1)) ReadIndent(runtime, bound[1], &style);
  if (bound.Given(2)) ReadSeparators(runtime, bound[2], &style);
  return runtime.failed() ? Value() : ToJson(runtime, input, style);
}

}  // namespace skein::engine::chat_template
