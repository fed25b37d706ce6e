#include "engine/chat_template/operations/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

void AppendEscaped(char32_t c, char quote, std::string* out) {
  char buffer[16];
  if (c == static_cast<char32_t>(quote) || c == '\\') {
    out->push_back('\\');
    out->push_back(static_cast<char>(c));
  } else if (c == '\n') {
    out->append("\\n");
  } else if (c == '\r') {
    out->append("\\r");
  } else if (c == '\t') {
    out->append("\\t");
  } else if (IsPrintable(c)) {
    AppendCodePoint(c, out);
  } else {
    const char* format = c <= 0xff ? "\\x%02x" : c <= 0xffff ? "\\u%04x" : "\\U%08x";
    std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(c));
    out->append(buffer);
  }
}

// Writes repr() piece by piece and stops where the text gets longer than a render may make.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime) {}

  std::string Run(const Value& value) {
    Write(value, 0);
    return runtime_.failed() ? "" : std::move(out_);
  }

 private:
  // Namespaces may contain themselves, so depth is counted here too.
  void Write(const Value& value, int depth) {
    if (!runtime_.Charge(1) || !runtime_.CheckDepth(depth)) return;
    if (out_.size() > runtime_.limits().output_bytes_max) {
      runtime_.Fail("the template makes too long a text");
      return;
    }
    if (value.IsString()) {
      if (runtime_.ChargeBytes(value.text().size())) out_ += QuoteString(value.text());
    } else if (value.IsSequence()) {
      WriteSequence(value.sequence(), depth);
    } else if (value.IsDict()) {
      WriteDict(value.dict(), depth);
    } else if (value.IsObject()) {
      WriteObject(value.object(), depth);
    } else {
      WriteScalar(value);
    }
  }

  void WriteScalar(const Value& value) {
    if (value.IsUndefined()) out_ += "Undefined";
    if (value.IsNone()) out_ += "None";
    if (value.IsBool()) out_ += value.boolean() ? "True" : "False";
    if (value.IsInt()) out_ += FormatInt(value.integer());
    if (value.IsFloat()) out_ += FormatFloat(value.real());
  }

  void WriteSequence(const Sequence& sequence, int depth) {
    const bool tuple = sequence.kind == SequenceKind::kTuple;
    const bool view = sequence.kind == SequenceKind::kView;
    if (view) out_ += std::string(sequence.label) + "(";
    out_ += tuple ? "(" : "[";
    for (size_t i = 0; i < sequence.items.size() && !runtime_.failed(); ++i) {
      if (i > 0) out_ += ", ";
      Write(sequence.items[i], depth + 1);
    }
    if (tuple && sequence.items.size() == 1) out_ += ",";
    out_ += tuple ? ")" : "]";
    if (view) out_ += ")";
  }

  void WriteDict(const Dict& dict, int depth) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (runtime_.failed()) return;
      if (!first) out_ += ", ";
      first = false;
      Write(key, depth + 1);
      out_ += ": ";
      Write(value, depth + 1);
    }
    out_ += "}";
  }

  void WriteObject(const Object& object, int depth) {
    if (const auto* n = dynamic_cast<const Namespace*>(&object)) {
      out_ += "<Namespace ";
      WriteDict(n->members(), depth + 1);
      out_ += ">";
    } else {
      out_ += "<" + std::string(object.TypeName()) + ">";
    }
  }

  Runtime& runtime_;
  std::string out_;
};

// A conversion of a printf-style format: "%-5.2f".
struct Conversion {
  std::string flags;
  int width = 0;
  int precision = -1;
  char type = 0;
};

constexpr int kWidthMax = 10'000;

std::string Pad(std::string text, const Conversion& c) {
  const size_t count = CodePointCount(text);
  const size_t width = static_cast<size_t>(c.width);
  if (count >= width) return text;
  const std::string spaces(width - count, ' ');
  return c.flags.find('-') != std::string::npos ? text + spaces : spaces + text;
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view format, const Value& operand)
      : runtime_(runtime), format_(format), operand_(operand) {}

  Value Run() {
    size_t i = 0;
    while (i < format_.size() && !runtime_.failed()) {
      if (format_[i] != '%') {
        out_.push_back(format_[i++]);
      } else {
        i = Convert(i + 1);
      }
    }
    const bool is_tuple = operand_.IsSequence(SequenceKind::kTuple);
    const size_t given = is_tuple ? operand_.sequence().items.size() : 1;
    if (!runtime_.failed() && next_ < given && !operand_.IsDict() &&
        (is_tuple || !operand_.IsSequence())) {
      return runtime_.Fail("not all arguments converted during string formatting");
    }
    return runtime_.failed() ? Value() : runtime_.MakeString(std::move(out_));
  }

 private:
  // One conversion that starts after its '%'; returns where the text goes on.
  size_t Convert(size_t i) {
    Value named;
    const bool has_name = i < format_.size() && format_[i] == '(';
    if (has_name) {
      const size_t end = Find(format_, ")", i);
      if (end == std::string_view::npos || !operand_.IsDict()) {
        runtime_.Fail("format requires a mapping");
        return format_.size();
      }
      const Value* found = operand_.dict().Find(format_.substr(i + 1, end - i - 1));
      if (found == nullptr) runtime_.Fail("a key of the format is missing");
      if (found != nullptr) named = *found;
      i = end + 1;
    }
    const Conversion c = ReadConversion(&i);
    if (c.type == '%') {
      out_.push_back('%');
    } else if (!runtime_.failed()) {
      const Value value = has_name ? named : NextOperand();
      if (!runtime_.failed()) Append(c, value);
    }
    return i;
  }

  Conversion ReadConversion(size_t* i) {
    Conversion c;
    const auto more = [&] { return *i < format_.size(); };
    while (more() && std::string_view("-+ #0").find(format_[*i]) != std::string_view::npos) {
      if (c.flags.size() < 5) c.flags.push_back(format_[*i]);
      ++*i;
    }
    c.width = ReadNumber(i);
    if (more() && format_[*i] == '.') {
      ++*i;
      c.precision = ReadNumber(i);
    }
    if (more()) {
      c.type = format_[(*i)++];
    } else {
      runtime_.Fail("incomplete format");
    }
    if (c.width > kWidthMax || c.precision > 300) runtime_.Fail("a format that is too wide");
    return c;
  }

  int ReadNumber(size_t* i) {
    int value = 0;
    while (*i < format_.size() && format_[*i] >= '0' && format_[*i] <= '9') {
      value = std::min(kWidthMax + 1, value * 10 + (format_[(*i)++] - '0'));
    }
    return value;
  }

  Value NextOperand() {
    if (operand_.IsSequence(SequenceKind::kTuple)) {
      const auto& items = operand_.sequence().items;
      if (next_ < items.size()) return items[next_++];
    } else if (next_++ == 0) {
      return operand_;
    }
    return runtime_.Fail("not enough arguments for format string");
  }

  void Append(const Conversion& c, const Value& value) {
    switch (c.type) {
      case 's':
      case 'r': {
        std::string text = c.type == 's' ? ToText(runtime_, value) : ToRepr(runtime_, value);
        if (c.precision >= 0) text = Truncated(text, static_cast<size_t>(c.precision));
        out_ += Pad(std::move(text), c);
        return;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return AppendInteger(c, value);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        return AppendReal(c, value);
      default:
        runtime_.Fail(absl::StrCat("unsupported format character '", std::string(1, c.type), "'"));
    }
  }

  static std::string Truncated(std::string_view text, size_t count) {
    size_t i = 0;
    for (; i < text.size() && count > 0; --count) i += CodePointAt(text, i).bytes;
    return std::string(text.substr(0, i));
  }

  void AppendInteger(const Conversion& c, const Value& value) {
    double number = 0;
    Int integer = 0;
    if (!value.AsInt(&integer)) {
      if (!value.AsNumber(&number) || !(std::abs(number) < 9e18)) {
        runtime_.Fail("the format requires a number");
        return;
      }
      integer = static_cast<Int>(number);
    }
    if (integer > INT64_MAX || integer < INT64_MIN) {
      runtime_.Fail("a number that is too large for the format");
      return;
    }
    const bool negative_hex = c.type != 'd' && c.type != 'i' && c.type != 'u' && integer < 0;
    if (negative_hex) {
      runtime_.Fail("a negative number in a hexadecimal or octal format");
      return;
    }
    Print(c, "ll", c.type == 'u' ? 'd' : c.type, static_cast<long long>(integer));
  }

  void AppendReal(const Conversion& c, const Value& value) {
    double number = 0;
    if (!value.AsNumber(&number)) {
      runtime_.Fail("the format requires a number");
    } else {
      Print(c, "", c.type, number);
    }
  }

  template <typename T>
  void Print(const Conversion& c, const char* length, char type, T number) {
    std::string format = "%" + c.flags + std::to_string(c.width);
    if (c.width == 0) format = "%" + c.flags;
    if (c.precision >= 0) format += "." + std::to_string(c.precision);
    format += std::string(length) + type;
    const int bytes = std::snprintf(nullptr, 0, format.c_str(), number);
    std::string text(static_cast<size_t>(bytes) + 1, '\0');
    std::snprintf(text.data(), text.size(), format.c_str(), number);
    text.pop_back();
    if (runtime_.ChargeBytes(text.size())) out_ += text;
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& operand_;
  std::string out_;
  size_t next_ = 0;
};

// The value of "{field}": a number, a name, or the next one.
const Value* FieldValue(std::string_view field, const Arguments& arguments, size_t* next) {
  if (field.empty()) {
    return *next < arguments.positional.size() ? &arguments.positional[(*next)++] : nullptr;
  }
  size_t index = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), index);
  if (error == std::errc() && end == field.data() + field.size()) {
    return index < arguments.positional.size() ? &arguments.positional[index] : nullptr;
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == field) return &value;
  }
  return nullptr;
}

void AppendField(Runtime& runtime, std::string_view field, const Arguments& arguments, size_t* next,
                 std::string* out) {
  bool repr = false;
  if (field.size() >= 2 && field[field.size() - 2] == '!') {
    repr = field.back() == 'r';
    field.remove_suffix(2);
  }
  const Value* value = FieldValue(field, arguments, next);
  if (value == nullptr || field.find_first_of(":.[!") != std::string_view::npos) {
    runtime.Fail(absl::StrCat("str.format() has no field '", std::string(field), "'"));
    return;
  }
  *out += repr ? ToRepr(runtime, *value) : ToText(runtime, *value);
  runtime.ChargeBytes(out->size() / 16);
}

}  // namespace

std::string FormatInt(Int value) {
  if (value == 0) return "0";
  unsigned __int128 magnitude =
      value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  std::string digits;
  for (; magnitude > 0; magnitude /= 10) {
    digits.push_back(static_cast<char>('0' + static_cast<int>(magnitude % 10)));
  }
  if (value < 0) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string result(buffer, fixed.ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string QuoteString(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool both = single && text.find('"') != std::string_view::npos;
  const char quote = single && !both ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    AppendEscaped(c.value, quote, &out);
    i += c.bytes;
  }
  out.push_back(quote);
  return out;
}

std::string ToText(Runtime& runtime, const Value& value) {
  if (value.IsString()) return std::string(value.text());
  if (value.IsUndefined()) return "";
  return ReprWriter(runtime).Run(value);
}

std::string ToRepr(Runtime& runtime, const Value& value) { return ReprWriter(runtime).Run(value); }

Value FormatPercent(Runtime& runtime, std::string_view format, const Value& operand) {
  return PercentFormatter(runtime, format, operand).Run();
}

Value FormatBraces(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size() && !runtime.failed();) {
    const char c = format[i];
    const bool doubled = i + 1 < format.size() && format[i + 1] == c;
    if (c != '{' && c != '}') {
      out.push_back(c);
      ++i;
    } else if (doubled) {
      out.push_back(c);
      i += 2;
    } else {
      const size_t end = c == '{' ? Find(format, "}", i) : std::string_view::npos;
      if (end == std::string_view::npos) return runtime.Fail("single brace in a format string");
      AppendField(runtime, format.substr(i + 1, end - i - 1), arguments, &next, &out);
      i = end + 1;
    }
  }
  return runtime.failed() ? Value() : runtime.MakeString(std::move(out));
}

}  // namespace skein::engine::chat_template
