#include "engine/tokenizer/text/json_reader.h"

#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

constexpr size_t kQuoteMax = 80;
constexpr int kNestingMax = 8;

}  // namespace

JsonReader::JsonReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
  if (!json_.is_object()) status_ = InvalidField(path_, "an object", json_);
}

const Json* JsonReader::Find(const char* key) const {
  if (!json_.is_object()) return nullptr;
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

void JsonReader::Invalid(const char* key, std::string_view expected) {
  const Json* value = Find(key);
  if (status_.ok()) status_ = InvalidField(PathOf(key), expected, value ? *value : Json());
}

bool JsonReader::Bool(const char* key, bool fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Invalid(key, "a boolean");
  return fallback;
}

std::string JsonReader::String(const char* key, std::string_view fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  Invalid(key, "a string");
  return std::string(fallback);
}

int64_t JsonReader::Int(const char* key, int64_t fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_number_integer() &&
      !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX))
    return value->get<int64_t>();
  Invalid(key, "an integer");
  return fallback;
}

const Json* JsonReader::Object(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr || value->is_object()) return value;
  Invalid(key, "an object");
  return nullptr;
}

const Json* JsonReader::Array(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr || value->is_array()) return value;
  Invalid(key, "an array");
  return nullptr;
}

std::string Quote(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kQuoteMax) return text;
  text.resize(StartOfCharBefore(text, kQuoteMax));
  return text + "…";
}

absl::Status NotSupported(const std::string& path, const Json& value) {
  return absl::UnimplementedError(path + ": " + Quote(value) + " is not supported");
}

absl::Status InvalidField(const std::string& path, std::string_view expected, const Json& value) {
  return absl::InvalidArgumentError(path + ": expected " + std::string(expected) + ", found " +
                                    Quote(value));
}

absl::Status FlattenSequence(const Json* json, const std::string& path, const char* list_key,
                             std::vector<Component>* components, int depth) {
  if (json == nullptr || json->is_null()) return absl::OkStatus();
  JsonReader reader(*json, path);
  std::string type = reader.String("type", "");
  if (!reader.ok()) return reader.status();
  if (type != "Sequence") {
    components->push_back({json, path, std::move(type)});
    return absl::OkStatus();
  }
  if (depth == kNestingMax) return absl::InvalidArgumentError(path + ": sequences nest too deeply");
  const Json* list = reader.Array(list_key);
  if (list == nullptr) reader.Invalid(list_key, "an array");
  if (!reader.ok()) return reader.status();
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string part = reader.PathOf(list_key) + "[" + std::to_string(i) + "]";
    if (absl::Status s = FlattenSequence(&(*list)[i], part, list_key, components, depth + 1);
        !s.ok())
      return s;
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
