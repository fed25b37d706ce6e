#include "engine/checkpoint/strict_json.h"

#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

using nlohmann::json;

constexpr size_t kNestingMax = 64;
constexpr size_t kShownMax = 120;  // characters of a refused value in an error

// Follows the parser and throws where the text repeats a key or nests too deep.
class Watcher {
 public:
  bool operator()(int /*depth*/, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        keys_.emplace_back();
        if (keys_.size() > kNestingMax) throw std::runtime_error("nested too deep");
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get<std::string>()).second) {
          throw std::runtime_error("duplicate key \"" + parsed.get<std::string>() + "\"");
        }
        break;
      case json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

std::string Show(const json* value) {
  if (value == nullptr) return "absent";
  std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "…";
  return text;
}

}  // namespace

absl::StatusOr<json> ParseStrictJson(std::string_view text, std::string_view origin) {
  try {
    Watcher watcher;
    return json::parse(
        text.begin(), text.end(),
        [&watcher](int depth, json::parse_event_t event, json& parsed) {
          return watcher(depth, event, parsed);
        },
        /*allow_exceptions=*/true);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(std::string(origin) + ": not valid JSON: " + error.what());
  }
}

FieldReader::FieldReader(const json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (!object.is_object()) status_ = absl::InvalidArgumentError(path_ + ": not a JSON object");
}

const json* FieldReader::Find(const char* field) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(field);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool FieldReader::Has(const char* field) const { return Find(field) != nullptr; }

void FieldReader::Refuse(const char* field, std::string_view why) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(path_ + field + " = " + Show(Find(field)) + ": " +
                                       std::string(why));
}

int64_t FieldReader::RequireInt(const char* field, int64_t low, int64_t high) {
  if (!Has(field)) {
    Refuse(field, "required");
    return low;
  }
  return Int(field, low, low, high);
}

int64_t FieldReader::Int(const char* field, int64_t fallback, int64_t low, int64_t high) {
  const json* value = Find(field);
  if (value == nullptr) return fallback;
  const bool in_range = value->is_number_unsigned()
                            ? high >= 0 && value->get<uint64_t>() <= static_cast<uint64_t>(high) &&
                                  (low <= 0 || value->get<uint64_t>() >= static_cast<uint64_t>(low))
                            : value->is_number_integer() && value->get<int64_t>() >= low &&
                                  value->get<int64_t>() <= high;
  if (in_range) return value->get<int64_t>();
  Refuse(field, "must be an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return fallback;
}

double FieldReader::Number(const char* field, double fallback, double low, double high) {
  const json* value = Find(field);
  if (value == nullptr) return fallback;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number) && number >= low && number <= high) return number;
  }
  Refuse(field, "must be a number from " + std::to_string(low) + " to " + std::to_string(high));
  return fallback;
}

bool FieldReader::Bool(const char* field, bool fallback) {
  const json* value = Find(field);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Refuse(field, "must be true or false");
  return fallback;
}

std::string FieldReader::String(const char* field, std::string_view fallback) {
  const json* value = Find(field);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  Refuse(field, "must be a string");
  return std::string(fallback);
}

std::vector<int32_t> FieldReader::Ids(const char* field, int64_t id_end) {
  const json* value = Find(field);
  if (value == nullptr) return {};
  const json list = value->is_array() ? *value : json::array({*value});
  std::vector<int32_t> ids;
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(id_end)) {
      Refuse(field, "must be a token id below " + std::to_string(id_end) + " or a list of them");
      return {};
    }
    ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
  return ids;
}

}  // namespace skein::engine
