// Reads the members of a JSON object and checks their types. Ranges are checked by the API's
// description (body_check.h). The first error is kept and later reads do nothing, so a caller reads
// everything and checks once. Absent and null are the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json_fwd.hpp"
#include "services/openai/api_error.h"

namespace skein::services::openai {

class Fields {
 public:
  // `object` must be an object and outlive the reader. `path` is a prefix for names in errors:
  // "messages[0]" gives "messages[0].role".
  explicit Fields(const nlohmann::ordered_json& object, std::string path = {});

  // The member; nullptr when absent or null.
  const nlohmann::ordered_json* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Each leaves *out unchanged when the member is absent. An integer may be written 3.0.
  void Int(std::string_view name, std::optional<int64_t>* out);
  void Int(std::string_view name, int64_t* out);
  void Number(std::string_view name, std::optional<double>* out);
  void Number(std::string_view name, double* out);
  void Bool(std::string_view name, bool* out);
  void String(std::string_view name, std::string* out);

  void Fail(ApiError error);
  // "Invalid type for 'name': expected <expected>."
  void WrongType(std::string_view name, std::string_view expected);

  std::string Path(std::string_view name) const;
  bool ok() const { return !error_.has_value(); }
  const MaybeError& error() const { return error_; }

 private:
  const nlohmann::ordered_json& object_;
  const std::string path_;
  MaybeError error_;
};

// "Invalid type for 'name': expected <expected>, but got <the value's type> instead."
ApiError WrongType(const std::string& name, std::string_view expected,
                   const nlohmann::ordered_json* value);

// Reads `json` as an integer in [INT64_MIN, INT64_MAX]. False: not an integer.
bool AsInt(const nlohmann::ordered_json& json, int64_t* out);

}  // namespace skein::services::openai
