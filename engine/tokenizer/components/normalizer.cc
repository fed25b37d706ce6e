#include "engine/tokenizer/components/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

// Characters that the form keeps, that begin a combining sequence and never join the one before.
// Most text is made of them.
bool IsStable(char32_t c, int options) {
  if (c < 0x80 || (c >= 0x3400 && c <= 0x9FFF)) return true;
  if (options == UTF8PROC_COMPOSE && (c < 0x300 || (c >= 0x2010 && c <= 0x2027) ||
                                      (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA)))
    return true;
  return c >= 0x0410 && c <= 0x044F && c != 0x0419 && c != 0x0439;
}

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

std::vector<utf8proc_int32_t> Decompose(std::string_view text, int options) {
  constexpr utf8proc_ssize_t kExpansionMax = 32;  // the longest compatibility decomposition is 18
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(NextChar(text, &pos));
    utf8proc_int32_t expansion[kExpansionMax];
    int bound_class = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        c, expansion, kExpansionMax, static_cast<utf8proc_option_t>(options), &bound_class);
    if (count < 0 || count > kExpansionMax) {
      chars.push_back(c);
    } else {
      chars.insert(chars.end(), expansion, expansion + count);
    }
  }
  return chars;
}

// The canonical order of marks. utf8proc's own sorts by swapping neighbours: quadratic in a text of
// nothing but marks.
void SortMarks(std::vector<utf8proc_int32_t>* chars) {
  const auto is_starter = [](utf8proc_int32_t c) { return CombiningClass(c) == 0; };
  for (auto it = chars->begin(); it != chars->end();) {
    const auto begin = std::find_if_not(it, chars->end(), is_starter);
    const auto end = std::find_if(begin, chars->end(), is_starter);
    if (end - begin > 1)
      std::stable_sort(begin, end,
                       [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    it = end;
  }
}

// Unicode Standard Annex 15: decompose, order the marks, and perhaps compose.
void AppendInForm(std::string_view text, int options, std::string* out) {
  std::vector<utf8proc_int32_t> chars =
      Decompose(text, UTF8PROC_DECOMPOSE | (options & UTF8PROC_COMPAT));
  SortMarks(&chars);
  if (options & UTF8PROC_COMPOSE) {
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        chars.data(), static_cast<utf8proc_ssize_t>(chars.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count >= 0) chars.resize(static_cast<size_t>(count));
  }
  for (const utf8proc_int32_t c : chars) AppendUtf8(static_cast<char32_t>(c), out);
}

// Only runs of characters that are not stable, each with the one before it, go the slow way.
std::string ToForm(std::string text, int options) {
  if (IsAscii(text)) return text;
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  size_t done = 0;      // text[0, done) is in `out`
  size_t previous = 0;  // where the last stable character begins
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (IsStable(NextChar(text, &pos), options)) {
      previous = begin;
      continue;
    }
    for (size_t next = pos; next < text.size(); pos = next)
      if (IsStable(NextChar(text, &next), options)) break;
    const size_t from = begin > done ? previous : begin;
    out.append(text, done, from - done);
    AppendInForm(std::string_view(text).substr(from, pos - from), options, &out);
    done = pos;
  }
  return out.append(text, done);
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextChar(text, &pos);
    if (c == 0x130) {  // the only character whose lower case is two: i and a dot above
      out += "i\xCC\x87";
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    }
  }
  return out;
}

std::string WithoutMarks(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (!IsMark(NextChar(text, &pos))) out += text.substr(begin, pos - begin);
  }
  return out;
}

std::string Stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t pos = 0;
    if (!IsWhiteSpace(NextChar(text, &pos))) break;
    text.remove_prefix(pos);
  }
  while (right && !text.empty() && IsWhiteSpace(CharBefore(text, text.size())))
    text = text.substr(0, StartOfCharBefore(text, text.size()));
  return std::string(text);
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const Json* json) {
  std::vector<Component> components;
  if (absl::Status s = FlattenSequence(json, "normalizer", "normalizers", &components); !s.ok())
    return s;
  Normalizer normalizer;
  for (const Component& component : components) {
    absl::StatusOr<Step> step = ParseStep(component);
    if (!step.ok()) return step.status();
    normalizer.steps_.push_back(*std::move(step));
  }
  return normalizer;
}

absl::StatusOr<Normalizer::Step> Normalizer::ParseStep(const Component& component) {
  JsonReader reader(*component.json, component.path);
  const std::string& type = component.type;
  if (type == "NFC") return Form::kNfc;
  if (type == "NFD") return Form::kNfd;
  if (type == "NFKC") return Form::kNfkc;
  if (type == "NFKD") return Form::kNfkd;
  if (type == "Lowercase") return Lowercase{};
  if (type == "StripAccents") return StripAccents{};
  if (type == "Prepend") {
    Prepend prepend{reader.String("prepend", "")};
    if (!reader.ok()) return reader.status();
    return prepend;
  }
  if (type == "Strip") {
    const bool left = reader.Bool("strip_left", true);
    const bool right = reader.Bool("strip_right", true);
    if (!reader.ok()) return reader.status();
    return Strip{left, right};
  }
  if (type == "Replace") {
    const Json* pattern_json = reader.Object("pattern");
    std::string content = reader.String("content", "");
    if (!reader.ok()) return reader.status();
    absl::StatusOr<Pattern> pattern =
        Pattern::FromJson(pattern_json ? *pattern_json : Json(), reader.PathOf("pattern"));
    if (!pattern.ok()) return pattern.status();
    return Replace{*std::move(pattern), std::move(content)};
  }
  return NotSupported(reader.PathOf("type"), type);
}

// Unicode's forms join an ASCII character with marks only, never with another one.
bool Normalizer::KeepsAscii() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& step) {
    if (std::holds_alternative<Strip>(step)) return false;
    const auto* replace = std::get_if<Replace>(&step);
    return replace == nullptr || (replace->pattern.literal_bytes() > 0 &&
                                  replace->content.size() >= replace->pattern.literal_bytes());
  });
}

std::string Normalizer::Apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = Run(step, std::move(out));
  return out;
}

std::string Normalizer::Run(const Step& step, std::string text) {
  constexpr int kOptions[] = {UTF8PROC_COMPOSE, 0, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                              UTF8PROC_COMPAT};
  return std::visit(
      Overloaded{
          [&](Form form) { return ToForm(std::move(text), kOptions[static_cast<int>(form)]); },
          [&](Lowercase) { return ToLower(text); },
          [&](StripAccents) { return WithoutMarks(text); },
          [&](const Prepend& prepend) { return text.empty() ? text : prepend.text + text; },
          [&](const Strip& strip) { return Stripped(text, strip.left, strip.right); },
          [&](const Replace& replace) {
            return replace.pattern.ReplaceAll(text, replace.content);
          }},
      step);
}

}  // namespace skein::engine
