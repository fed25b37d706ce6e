// Typed access to the fields of a JSON object whose content nobody has vouched for. The first error
// sticks, so a parser reads all its fields and asks for the status once. Errors name the field by
// its path and quote its value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace skein::engine {

using Json = nlohmann::json;

class JsonReader {
 public:
  // `json` must outlive the reader. `path` is what errors call it.
  JsonReader(const Json& json, std::string path);

  // Absent and null fields yield `fallback`.
  bool Bool(const char* key, bool fallback);
  std::string String(const char* key, std::string_view fallback);
  int64_t Int(const char* key, int64_t fallback);

  // The field, or nullptr where it is absent or null.
  const Json* Find(const char* key) const;
  // As Find, but it is an error if the field is there and has another type.
  const Json* Object(const char* key);
  const Json* Array(const char* key);

  std::string PathOf(const char* key) const { return path_ + "." + key; }
  const std::string& path() const { return path_; }
  const Json& json() const { return json_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

  void Invalid(const char* key, std::string_view expected);

 private:
  const Json& json_;
  std::string path_;
  absl::Status status_;
};

// UNIMPLEMENTED: "<path>: <value> is not supported".
absl::Status NotSupported(const std::string& path, const Json& value);
absl::Status InvalidField(const std::string& path, std::string_view expected, const Json& value);

// The value as JSON text, cut to a length fit for a message.
std::string Quote(const Json& value);

// A component of tokenizer.json, {"type": …} or null, with nested sequences unrolled in order.
// `list_key` is where a Sequence keeps its parts. Fails when `json` is neither null nor an object,
// or nests too deeply.
struct Component {
  const Json* json;
  std::string path;
  std::string type;
};
absl::Status FlattenSequence(const Json* json, const std::string& path, const char* list_key,
                             std::vector<Component>* components, int depth = 0);

}  // namespace skein::engine
