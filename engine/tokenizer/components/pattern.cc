#include "engine/tokenizer/components/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

// Steps of one match. The longest legitimate one walks a run of blanks as long as the text, forth
// and back.
constexpr uint32_t kMatchStepsMax = 10'000'000;
constexpr uint32_t kBacktrackDepthMax = 100'000;
constexpr uint32_t kHeapKibMax = 64 * 1024;
constexpr size_t kExpressionBytesMax = 64 * 1024;

constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// The class that an escape such as \s stands for, "" for other escapes.
std::string_view ClassOf(char escape) {
  switch (escape) {
    case 's':
    case 'S':
      return kSpace;
    case 'w':
    case 'W':
      return kWord;
    case 'h':
    case 'H':
      return kHexDigit;
    default:
      return {};
  }
}

void AppendEscape(char escape, bool in_class, std::string* out) {
  const std::string_view members = ClassOf(escape);
  const bool negated = escape >= 'A' && escape <= 'Z';
  if (members.empty() || (negated && in_class)) {
    *out += {'\\', escape};
  } else if (in_class) {
    *out += members;
  } else {
    *out += negated ? "[^" : "[";
    *out += members;
    *out += ']';
  }
}

// Oniguruma reads && in a class as an intersection and [ as a class inside it; PCRE2 reads both as
// plain characters, so the expression would match something else.
absl::Status RefuseClassSets(std::string_view expression) {
  size_t class_begin = 0;  // behind the [ or [^ of the open class, 0: none is open
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const char next = i + 1 < expression.size() ? expression[i + 1] : '\0';
    if (c == '\\') {
      ++i;
    } else if (class_begin == 0) {
      if (c != '[') continue;
      if (next == '^') ++i;
      class_begin = i + 1;
    } else if (c == '[' && next == ':' && expression.find(":]", i) != std::string_view::npos) {
      i = expression.find(":]", i) + 1;  // [:alpha:]
    } else if (c == ']' && i > class_begin) {
      class_begin = 0;
    } else if (c == '&' && next == '&') {
      return absl::InvalidArgumentError(
          "the regular expression intersects character classes (&&), which is not supported");
    } else if (c == '[') {
      return absl::InvalidArgumentError(
          "the regular expression has a character class inside another ([ in a class), which is "
          "not supported; write \\[ for the character");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string TranslateRegex(std::string_view expression) {
  std::string out;
  int class_depth = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      AppendEscape(expression[++i], class_depth > 0, &out);
      continue;
    }
    if (c == '[' && class_depth == 0) {
      class_depth = 1;
    } else if (c == ']' && class_depth == 1) {
      class_depth = 0;
    }
    out += c;
  }
  return out;
}

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  bool jit = false;

  ~Compiled() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }

  int Match(std::string_view text, size_t from, pcre2_match_data* data) const {
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (jit) {
      rc = pcre2_jit_match(code, Bytes(text), text.size(), from, PCRE2_NO_UTF_CHECK, data, limits);
      if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    }
    // The interpreter keeps its backtracking points on the heap, within the limit.
    return pcre2_match(code, Bytes(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data, limits);
  }
};

Pattern::Pattern() = default;
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

absl::StatusOr<Pattern> Pattern::Literal(std::string literal) {
  if (literal.empty()) return absl::InvalidArgumentError("the pattern is empty");
  Pattern pattern;
  pattern.literal_ = std::move(literal);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::Regex(std::string_view expression) {
  if (expression.empty() || expression.size() > kExpressionBytesMax || !IsUtf8(expression))
    return absl::InvalidArgumentError("the regular expression is empty, too long or not UTF-8");
  if (absl::Status sets = RefuseClassSets(expression); !sets.ok()) return sets;
  const std::string translated = TranslateRegex(expression);
  Pattern pattern;
  pattern.compiled_ = std::make_unique<Compiled>();
  Compiled& compiled = *pattern.compiled_;
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled.code = pcre2_compile(Bytes(translated), translated.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                &error, &offset, nullptr);
  if (compiled.code == nullptr) {
    char message[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return absl::InvalidArgumentError("the regular expression does not compile: " +
                                      std::string(message));
  }
  compiled.jit = pcre2_jit_compile(compiled.code, PCRE2_JIT_COMPLETE) == 0;
  compiled.limits = pcre2_match_context_create(nullptr);
  if (compiled.limits == nullptr) return absl::ResourceExhaustedError("out of memory");
  pcre2_set_match_limit(compiled.limits, kMatchStepsMax);
  pcre2_set_depth_limit(compiled.limits, kBacktrackDepthMax);
  pcre2_set_heap_limit(compiled.limits, kHeapKibMax);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::FromJson(const Json& json, const std::string& path) {
  JsonReader reader(json, path);
  const std::string literal = reader.String("String", "");
  const std::string expression = reader.String("Regex", "");
  if (!reader.ok()) return reader.status();
  if (literal.empty() == expression.empty())
    return InvalidField(path, "one of \"String\" and \"Regex\"", json);
  absl::StatusOr<Pattern> pattern = literal.empty() ? Regex(expression) : Literal(literal);
  if (!pattern.ok())
    return absl::InvalidArgumentError(path + ": " + std::string(pattern.status().message()) + ": " +
                                      Quote(json));
  return pattern;
}

void Pattern::Cut(std::string_view text, std::vector<Span>* spans) const {
  if (compiled_) {
    CutRegex(text, spans);
  } else {
    CutLiteral(text, spans);
  }
}

void Pattern::CutLiteral(std::string_view text, std::vector<Span>* spans) const {
  size_t from = 0;
  for (size_t at; (at = text.find(literal_, from)) != std::string_view::npos;) {
    if (at > from) spans->push_back({from, at, false});
    from = at + literal_.size();
    spans->push_back({at, from, true});
  }
  if (from < text.size()) spans->push_back({from, text.size(), false});
}

void Pattern::CutRegex(std::string_view text, std::vector<Span>* spans) const {
  const MatchData data(pcre2_match_data_create_from_pattern(compiled_->code, nullptr));
  size_t from = 0;    // end of what is listed
  size_t search = 0;  // where the next match may begin
  while (data && search < text.size() && compiled_->Match(text, search, data.get()) >= 0) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const size_t begin = bounds[0], end = bounds[1];
    if (begin < from || end < begin || end > text.size()) break;  // \K can make such bounds
    if (begin > from) spans->push_back({from, begin, false});
    spans->push_back({begin, end, true});
    from = search = end;
    if (begin == end && end < text.size()) NextChar(text, &search);
  }
  if (from < text.size()) spans->push_back({from, text.size(), false});
}

std::string Pattern::ReplaceAll(std::string_view text, std::string_view content) const {
  std::vector<Span> spans;
  Cut(text, &spans);
  std::string out;
  out.reserve(text.size() + content.size());
  for (const Span& span : spans)
    out += span.is_match ? content : text.substr(span.begin, span.end - span.begin);
  return out;
}

}  // namespace skein::engine
