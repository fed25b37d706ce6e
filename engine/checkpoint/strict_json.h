// JSON of a checkpoint folder, parsed without trust: a duplicate key, more than 64 levels of
// nesting, anything after the value or invalid UTF-8 is an error. Typed field reads name the field
// and the value they found. No exception leaves these functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace skein::engine {

// `origin` names the text in errors ("config.json").
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, std::string_view origin);

// Reads fields of one JSON object. The first bad field is remembered (`status()`); later reads then
// return their fallback, so that a caller reads everything and asks once. A field that is absent or
// null takes the fallback; Require* treat that as an error.
class FieldReader {
 public:
  // `object` must outlive the reader. `path` is the prefix of field names in errors.
  FieldReader(const nlohmann::json& object, std::string path);

  bool Has(const char* field) const;  // present and not null
  int64_t RequireInt(const char* field, int64_t low, int64_t high);
  int64_t Int(const char* field, int64_t fallback, int64_t low, int64_t high);
  double Number(const char* field, double fallback, double low, double high);
  bool Bool(const char* field, bool fallback);
  std::string String(const char* field, std::string_view fallback);
  // An id or a list of ids; `true_list` of none when absent.
  std::vector<int32_t> Ids(const char* field, int64_t id_end);

  // Remembers "<path><field> = <value>: <why>" unless an earlier error is held.
  void Refuse(const char* field, std::string_view why);
  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json* Find(const char* field) const;

  const nlohmann::json& object_;
  std::string path_;
  absl::Status status_;
};

}  // namespace skein::engine
