#include "engine/tokenizer/components/decoder.h"

#include <charconv>

#include "engine/tokenizer/bpe/byte_level.h"
#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

// The byte that "<0xXX>" names, -1 for another token.
int ByteNamedBy(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  return error == std::errc() && end == token.data() + 5 ? static_cast<int>(value) : -1;
}

std::string StripEnds(std::string_view text, std::string_view content, size_t start_max,
                      size_t stop_max) {
  for (size_t i = 0; i < start_max && text.starts_with(content); ++i)
    text.remove_prefix(content.size());
  for (size_t i = 0; i < stop_max && text.ends_with(content); ++i)
    text.remove_suffix(content.size());
  return std::string(text);
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::FromJson(const Json* json) {
  if (json == nullptr || json->is_null()) return NotSupported("decoder", Json());
  std::vector<Component> components;
  absl::Status status = FlattenSequence(json, "decoder", "decoders", &components);
  TokenDecoder decoder;
  for (size_t i = 0; status.ok() && i < components.size(); ++i) status = decoder.Add(components[i]);
  if (!status.ok()) return status;
  return decoder;
}

absl::Status TokenDecoder::Add(const Component& component) {
  JsonReader reader(*component.json, component.path);
  if (component.type == "Strip") return AddStrip(&reader);
  if (component.type == "Fuse") {
    fused_ = true;
    return absl::OkStatus();
  }
  if (fused_) return NotSupported(component.path + " after Fuse or ByteLevel", component.type);
  if (component.type == "Replace") return AddReplace(&reader);
  if (component.type == "Metaspace") return AddMetaspace(&reader);
  if (component.type == "ByteFallback") {
    text_rules_.replace_each_byte = true;
    steps_.push_back(ByteFallback{});
    return absl::OkStatus();
  }
  if (component.type == "ByteLevel") {
    fused_ = true;
    steps_.push_back(ByteLevel{});
    return absl::OkStatus();
  }
  return NotSupported(reader.PathOf("type"), component.type);
}

absl::Status TokenDecoder::AddReplace(JsonReader* reader) {
  const Json* pattern_json = reader->Object("pattern");
  std::string content = reader->String("content", "");
  if (!reader->ok()) return reader->status();
  absl::StatusOr<Pattern> pattern =
      Pattern::FromJson(pattern_json ? *pattern_json : Json(), reader->PathOf("pattern"));
  if (!pattern.ok()) return pattern.status();
  steps_.push_back(Replace{*std::move(pattern), std::move(content)});
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddStrip(JsonReader* reader) {
  constexpr int64_t kCountMax = 1024;
  Strip strip{reader->String("content", " "), 0, 0};
  const int64_t start = reader->Int("start", 0), stop = reader->Int("stop", 0);
  if (start < 0 || start > kCountMax) reader->Invalid("start", "a small count");
  if (stop < 0 || stop > kCountMax) reader->Invalid("stop", "a small count");
  if (strip.content.empty()) reader->Invalid("content", "a character");
  if (!reader->ok()) return reader->status();
  strip.start_max = static_cast<size_t>(start);
  strip.stop_max = static_cast<size_t>(stop);
  if (fused_) return StripText(strip, reader->path());
  steps_.push_back(std::move(strip));
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddMetaspace(JsonReader* reader) {
  const std::string replacement = reader->String("replacement", "▁");
  const bool add_prefix_space = reader->Bool("add_prefix_space", true);
  const std::string scheme =
      reader->String("prepend_scheme", add_prefix_space ? "always" : "never");
  if (replacement.empty()) reader->Invalid("replacement", "a character");
  if (!reader->ok()) return reader->status();
  steps_.push_back(Replace{*Pattern::Literal(replacement), " "});
  return scheme == "never" ? absl::OkStatus() : StripText({" ", 1, 0}, reader->path());
}

absl::Status TokenDecoder::StripText(const Strip& strip, const std::string& path) {
  if (!text_rules_.strip.empty())
    return absl::UnimplementedError(path + ": a second Strip of the text is not supported");
  text_rules_.strip = strip.content;
  text_rules_.strip_start_max = strip.start_max;
  text_rules_.strip_stop_max = strip.stop_max;
  return absl::OkStatus();
}

std::string TokenDecoder::BytesOf(std::string_view token, bool is_added) const {
  std::string text(token);
  for (const Step& step : steps_) {
    if (const auto* replace = std::get_if<Replace>(&step)) {
      text = replace->pattern.ReplaceAll(text, replace->content);
    } else if (const auto* strip = std::get_if<Strip>(&step)) {
      text = StripEnds(text, strip->content, strip->start_max, strip->stop_max);
    } else if (std::holds_alternative<ByteFallback>(step)) {
      const int byte = ByteNamedBy(text);
      if (byte >= 0) return std::string(1, static_cast<char>(byte));
    } else if (!is_added) {
      if (auto bytes = ByteLevelBytes(text)) return *std::move(bytes);
    }
  }
  return text;
}

}  // namespace skein::engine
