#include "services/openai/fields.h"

#include <cmath>
#include <utility>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

std::string_view TypeName(const Json& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "an array";
  if (json.is_string()) return "a string";
  if (json.is_boolean()) return "a boolean";
  if (json.is_number_float()) return "a decimal";
  return json.is_number() ? "an integer" : "null";
}

}  // namespace

ApiError WrongType(const std::string& name, std::string_view expected, const Json* value) {
  std::string message = "Invalid type for '" + name + "': expected " + std::string(expected);
  message.append(", but got ")
      .append(value == nullptr ? "nothing" : TypeName(*value))
      .append(" instead.");
  return InvalidParam(name, std::move(message), "invalid_type");
}

bool AsInt(const Json& json, int64_t* out) {
  if (json.is_number_float()) {
    const double value = json.get<double>();
    if (std::trunc(value) != value || std::fabs(value) > 9007199254740992.0) return false;
    *out = static_cast<int64_t>(value);
    return true;
  }
  if (!json.is_number_integer()) return false;
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return false;
  *out = json.get<int64_t>();
  return true;
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

std::string Fields::Path(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

const Json* Fields::Find(std::string_view name) const {
  for (const auto& [key, value] : object_.get_ref<const Json::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

void Fields::Fail(ApiError error) {
  if (ok()) error_ = std::move(error);
}

void Fields::WrongType(std::string_view name, std::string_view expected) {
  Fail(openai::WrongType(Path(name), expected, Find(name)));
}

void Fields::Int(std::string_view name, std::optional<int64_t>* out) {
  const Json* json = Find(name);
  if (json == nullptr || !ok()) return;
  int64_t value = 0;
  if (!AsInt(*json, &value)) return WrongType(name, "an integer");
  *out = value;
}

void Fields::Int(std::string_view name, int64_t* out) {
  std::optional<int64_t> value;
  Int(name, &value);
  *out = value.value_or(*out);
}

void Fields::Number(std::string_view name, std::optional<double>* out) {
  const Json* json = Find(name);
  if (json == nullptr || !ok()) return;
  if (!json->is_number()) return WrongType(name, "a number");
  *out = json->get<double>();
}

void Fields::Number(std::string_view name, double* out) {
  std::optional<double> value;
  Number(name, &value);
  *out = value.value_or(*out);
}

void Fields::Bool(std::string_view name, bool* out) {
  const Json* json = Find(name);
  if (json == nullptr || !ok()) return;
  if (!json->is_boolean()) return WrongType(name, "a boolean");
  *out = json->get<bool>();
}

void Fields::String(std::string_view name, std::string* out) {
  const Json* json = Find(name);
  if (json == nullptr || !ok()) return;
  if (!json->is_string()) return WrongType(name, "a string");
  *out = json->get_ref<const std::string&>();
}

}  // namespace skein::services::openai
