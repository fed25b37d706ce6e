#include "services/openai/fields.h"

#include <charconv>
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

std::string Text(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end.ptr);
}

ApiError OutOfRange(const std::string& path, const std::string& range, const std::string& value) {
  return InvalidParam(
      path, "Invalid value for '" + path + "': expected " + range + ", got " + value + ".");
}

}  // namespace

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
  const Json* value = Find(name);
  const std::string path = Path(name);
  std::string message = "Invalid type for '" + path + "': expected " + std::string(expected);
  message.append(", but got ")
      .append(value == nullptr ? "nothing" : TypeName(*value))
      .append(" instead.");
  Fail(InvalidParam(path, std::move(message), "invalid_type"));
}

void Fields::Int(std::string_view name, int64_t min, int64_t max, std::optional<int64_t>* out) {
  const Json* json = Find(name);
  if (json == nullptr || !ok()) return;
  int64_t value = 0;
  if (!json->is_number()) return WrongType(name, "an integer");
  const std::string range =
      "an integer between " + std::to_string(min) + " and " + std::to_string(max);
  if (!AsInt(*json, &value)) return Fail(OutOfRange(Path(name), range, json->dump()));
  if (value < min || value > max) return Fail(OutOfRange(Path(name), range, std::to_string(value)));
  *out = value;
}

void Fields::Int(std::string_view name, int64_t min, int64_t max, int64_t* out) {
  std::optional<int64_t> value;
  Int(name, min, max, &value);
  if (value.has_value()) *out = *value;
}

void Fields::Number(std::string_view name, double min, double max, std::optional<double>* out) {
  const Json* json = Find(name);
  if (json == nullptr || !ok()) return;
  if (!json->is_number()) return WrongType(name, "a number");
  const double value = json->get<double>();
  if (!(value >= min && value <= max)) {
    return Fail(
        OutOfRange(Path(name), "a number between " + Text(min) + " and " + Text(max), Text(value)));
  }
  *out = value;
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

void Fields::RefuseIfSet(std::string_view name, const std::string& why) {
  const Json* json = Find(name);
  if (json == nullptr) return;
  const bool harmless = (json->is_boolean() && !json->get<bool>()) ||
                        ((json->is_array() || json->is_object()) && json->empty()) ||
                        (json->is_string() && json->get_ref<const std::string&>().empty());
  if (!harmless) Fail(Unsupported(Path(name), why));
}

}  // namespace skein::services::openai
