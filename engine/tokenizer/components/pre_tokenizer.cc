#include "engine/tokenizer/components/pre_tokenizer.h"

#include <algorithm>

#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

// GPT-2's encoder.py.
constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
    {"Removed", SplitBehavior::kRemoved},
    {"Isolated", SplitBehavior::kIsolated},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous},
};

absl::StatusOr<SplitBehavior> ParseBehavior(JsonReader* reader) {
  const std::string name = reader->String("behavior", "Isolated");
  if (!reader->ok()) return reader->status();
  for (const auto& [known, behavior] : kBehaviors)
    if (name == known) return behavior;
  return NotSupported(reader->PathOf("behavior"), name);
}

void CutByClass(bool (*is_member)(char32_t), std::string_view text, std::vector<Span>* spans) {
  size_t gap = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (!is_member(NextChar(text, &pos))) continue;
    if (begin > gap) spans->push_back({gap, begin, false});
    spans->push_back({begin, pos, true});
    gap = pos;
  }
  if (gap < text.size()) spans->push_back({gap, text.size(), false});
}

// Joins a span to its neighbour where the behaviour says so. The spans cover the text in order.
void Join(SplitBehavior behavior, std::vector<Span>* spans) {
  std::vector<Span>& s = *spans;
  if (s.empty() || behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved)
    return;
  size_t kept = 0;
  bool previous_is_match = s[0].is_match;
  for (size_t i = 1; i < s.size(); ++i) {
    const bool is_match = s[i].is_match;
    const bool joins = behavior == SplitBehavior::kContiguous ? is_match == previous_is_match
                       : behavior == SplitBehavior::kMergedWithPrevious
                           ? is_match && !previous_is_match
                           : !is_match && previous_is_match;
    previous_is_match = is_match;
    if (joins) {
      s[kept].end = s[i].end;
    } else {
      s[++kept] = s[i];
    }
  }
  s.resize(kept + 1);
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const Json* json) {
  std::vector<Component> components;
  absl::Status status = FlattenSequence(json, "pre_tokenizer", "pretokenizers", &components);
  PreTokenizer pre_tokenizer;
  for (size_t i = 0; status.ok() && i < components.size(); ++i) {
    // What follows would see the alphabet's characters where we keep bytes.
    if (pre_tokenizer.byte_level_)
      return NotSupported(components[i].path + " after ByteLevel", components[i].type);
    status = pre_tokenizer.AddStep(components[i]);
  }
  if (!status.ok()) return status;
  return pre_tokenizer;
}

absl::Status PreTokenizer::AddStep(const Component& component) {
  JsonReader reader(*component.json, component.path);
  if (component.type == "Split") return AddSplit(&reader);
  if (component.type == "ByteLevel") return AddByteLevel(&reader);
  if (component.type == "Metaspace") return AddMetaspace(&reader);
  return AddOthers(component.type, &reader);
}

absl::Status PreTokenizer::AddRegex(std::string_view expression, SplitBehavior behavior,
                                    bool invert) {
  absl::StatusOr<Pattern> pattern = Pattern::Regex(expression);
  if (pattern.ok()) steps_.emplace_back(Splitter{*std::move(pattern), behavior, invert});
  return pattern.status();
}

absl::Status PreTokenizer::AddSplit(JsonReader* reader) {
  const Json* pattern_json = reader->Object("pattern");
  const bool invert = reader->Bool("invert", false);
  if (!reader->ok()) return reader->status();
  const absl::StatusOr<SplitBehavior> behavior = ParseBehavior(reader);
  if (!behavior.ok()) return behavior.status();
  absl::StatusOr<Pattern> pattern =
      Pattern::FromJson(pattern_json ? *pattern_json : Json(), reader->PathOf("pattern"));
  if (pattern.ok()) steps_.emplace_back(Splitter{*std::move(pattern), *behavior, invert});
  return pattern.status();
}

absl::Status PreTokenizer::AddByteLevel(JsonReader* reader) {
  const bool add_prefix_space = reader->Bool("add_prefix_space", true);
  const bool use_regex = reader->Bool("use_regex", true);
  if (!reader->ok()) return reader->status();
  byte_level_ = true;
  if (add_prefix_space) steps_.emplace_back(PrefixSpace{});
  return use_regex ? AddRegex(kGpt2Expression, SplitBehavior::kIsolated, false) : absl::OkStatus();
}

absl::Status PreTokenizer::AddMetaspace(JsonReader* reader) {
  Metaspace metaspace;
  metaspace.replacement = reader->String("replacement", "▁");
  const bool add_prefix_space = reader->Bool("add_prefix_space", true);
  const bool split = reader->Bool("split", true);
  const std::string scheme =
      reader->String("prepend_scheme", add_prefix_space ? "always" : "never");
  if (metaspace.replacement.empty()) reader->Invalid("replacement", "a character");
  if (!reader->ok()) return reader->status();
  if (scheme == "first") {
    metaspace.prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "always") {
    metaspace.prepend = Metaspace::Prepend::kAlways;
  } else if (scheme == "never") {
    metaspace.prepend = Metaspace::Prepend::kNever;
  } else {
    return NotSupported(reader->PathOf("prepend_scheme"), scheme);
  }
  steps_.emplace_back(metaspace);
  if (!split) return absl::OkStatus();
  absl::StatusOr<Pattern> pattern = Pattern::Literal(metaspace.replacement);
  if (pattern.ok())
    steps_.emplace_back(Splitter{*std::move(pattern), SplitBehavior::kMergedWithNext, false});
  return pattern.status();
}

absl::Status PreTokenizer::AddOthers(const std::string& type, JsonReader* reader) {
  if (type == "Digits") {
    const bool individual = reader->Bool("individual_digits", false);
    steps_.emplace_back(Splitter{
        &IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
    return reader->status();
  }
  if (type == "Punctuation") {
    const absl::StatusOr<SplitBehavior> behavior = ParseBehavior(reader);
    if (behavior.ok()) steps_.emplace_back(Splitter{&IsPunctuation, *behavior, false});
    return behavior.status();
  }
  if (type == "WhitespaceSplit") {
    steps_.emplace_back(Splitter{&IsWhiteSpace, SplitBehavior::kRemoved, false});
    return absl::OkStatus();
  }
  if (type == "Whitespace") return AddRegex(R"(\w+|[^\w\s]+)", SplitBehavior::kRemoved, true);
  if (type == "CharDelimiterSplit") {
    const std::string delimiter = reader->String("delimiter", "");
    if (delimiter.empty()) reader->Invalid("delimiter", "a character");
    if (!reader->ok()) return reader->status();
    steps_.emplace_back(Splitter{*Pattern::Literal(delimiter), SplitBehavior::kRemoved, false});
    return absl::OkStatus();
  }
  return NotSupported(reader->PathOf("type"), type);
}

bool PreTokenizer::KeepsText() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const auto* splitter = std::get_if<Splitter>(&step);
    const auto* space = std::get_if<Metaspace>(&step);
    return (splitter == nullptr || splitter->behavior != SplitBehavior::kRemoved) &&
           (space == nullptr || !space->replacement.empty());
  });
}

void PreTokenizer::Split(std::string_view text, bool at_start, Pieces* pieces) const {
  pieces->views.clear();
  pieces->rewritten.clear();
  if (text.empty()) return;
  pieces->views.push_back(text);
  const char* origin = text.data();
  for (const Step& step : steps_) {
    if (pieces->views.empty()) return;
    // The first piece is at the start unless what stood before it was removed.
    const bool first =
        at_start && (pieces->views[0].data() == origin || !pieces->rewritten.empty());
    Run(step, first, pieces);
  }
}

void PreTokenizer::Run(const Step& step, bool at_start, Pieces* pieces) {
  if (const auto* splitter = std::get_if<Splitter>(&step)) return RunSplitter(*splitter, pieces);
  if (const auto* metaspace = std::get_if<Metaspace>(&step))
    return RunMetaspace(*metaspace, at_start, pieces);
  for (std::string_view& view : pieces->views) {
    if (view.starts_with(' ')) continue;
    pieces->rewritten.push_back(" " + std::string(view));
    view = pieces->rewritten.back();
  }
}

void PreTokenizer::RunSplitter(const Splitter& splitter, Pieces* pieces) {
  std::vector<std::string_view> out;
  std::vector<Span> spans;
  for (const std::string_view view : pieces->views) {
    spans.clear();
    if (const auto* pattern = std::get_if<Pattern>(&splitter.where)) {
      pattern->Cut(view, &spans);
    } else {
      CutByClass(std::get<1>(splitter.where), view, &spans);
    }
    if (splitter.invert)
      for (Span& span : spans) span.is_match = !span.is_match;
    Join(splitter.behavior, &spans);
    for (const Span& span : spans) {
      if (span.begin == span.end) continue;
      if (span.is_match && splitter.behavior == SplitBehavior::kRemoved) continue;
      out.push_back(view.substr(span.begin, span.end - span.begin));
    }
  }
  pieces->views = std::move(out);
}

void PreTokenizer::RunMetaspace(const Metaspace& metaspace, bool at_start, Pieces* pieces) {
  bool first = at_start;
  for (std::string_view& view : pieces->views) {
    std::string text;
    text.reserve(view.size() + metaspace.replacement.size());
    for (const char c : view) {
      if (c == ' ') {
        text += metaspace.replacement;
      } else {
        text += c;
      }
    }
    const bool wants = metaspace.prepend == Metaspace::Prepend::kAlways ||
                       (metaspace.prepend == Metaspace::Prepend::kFirst && first);
    if (wants && !text.starts_with(metaspace.replacement)) text = metaspace.replacement + text;
    pieces->rewritten.push_back(std::move(text));
    view = pieces->rewritten.back();
    first = false;
  }
}

}  // namespace skein::engine
