#include "engine/tokenizer/components/config.h"

namespace skein::engine {
namespace {

// A token is a string or an object with a content.
std::optional<std::string> ReadTokenName(JsonReader* reader, const char* key) {
  const Json* value = reader->Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return reader->String(key, "");
  const auto content = value->find("content");
  if (content != value->end() && content->is_string()) return content->get<std::string>();
  reader->Invalid(key, "a string or an object with content");
  return std::nullopt;
}

std::optional<bool> ReadFlag(JsonReader* reader, const char* key) {
  if (reader->Find(key) == nullptr) return std::nullopt;
  return reader->Bool(key, false);
}

// A string, or a list of {"name", "template"}.
std::optional<std::string> ReadChatTemplate(JsonReader* reader) {
  const Json* value = reader->Find("chat_template");
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return reader->String("chat_template", "");
  for (const Json& item : *value) {
    JsonReader named(item, reader->PathOf("chat_template"));
    if (named.String("name", "") == "default" && named.Find("template") && named.ok())
      return named.String("template", "");
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const Json& json) {
  JsonReader reader(json, "tokenizer_config.json");
  TokenizerConfig config;
  config.bos = ReadTokenName(&reader, "bos_token");
  config.eos = ReadTokenName(&reader, "eos_token");
  config.unk = ReadTokenName(&reader, "unk_token");
  config.pad = ReadTokenName(&reader, "pad_token");
  config.add_bos = ReadFlag(&reader, "add_bos_token");
  config.add_eos = ReadFlag(&reader, "add_eos_token");
  config.chat_template = ReadChatTemplate(&reader);
  if (!reader.ok()) return reader.status();
  return config;
}

}  // namespace skein::engine
