#include "services/openai/batch_request.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "nlohmann/json.hpp"
#include "services/openai/parse.h"

namespace skein::services::openai {
namespace {

constexpr size_t kPairsMax = 16, kKeyMax = 64, kValueMax = 512;  // OpenAI's limits of metadata
constexpr int64_t kWindowMinS = 60, kWindowMaxS = kExpiresMaxS;
constexpr std::string_view kEndpoints[] = {"/v1/chat/completions", "/v1/completions"};

bool ParseCount(std::string_view text, int64_t* count) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *count);
  return error == std::errc() && end == text.data() + text.size();
}

// Of UTF-8 text: code points.
size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

ApiError TooLong(const std::string& what, size_t max, size_t size) {
  return InvalidParam("metadata", "Invalid " + what + ": string too long. Expected a string with " +
                                      "maximum length " + std::to_string(max) +
                                      ", but got a string with length " + std::to_string(size) +
                                      " instead.");
}

MaybeError ReadMetadata(const Json& metadata, std::map<std::string, std::string>* out) {
  if (metadata.size() > kPairsMax) {
    return InvalidParam("metadata",
                        "Invalid 'metadata': too many properties. Expected an object with at "
                        "most " +
                            std::to_string(kPairsMax) + " properties, but got an object with " +
                            std::to_string(metadata.size()) + " properties instead.");
  }
  for (const auto& [key, value] : metadata.items()) {
    const std::string name = "metadata." + key;
    if (!value.is_string()) return WrongType(name, "a string", &value);
    const auto& text = value.get_ref<const std::string&>();
    if (const size_t size = Characters(key); size > kKeyMax) {
      return TooLong("key '" + key.substr(0, kKeyMax) + "...' of 'metadata'", kKeyMax, size);
    }
    if (const size_t size = Characters(text); size > kValueMax) {
      return TooLong("'" + name + "'", kValueMax, size);
    }
    (*out)[key] = text;
  }
  return std::nullopt;
}

MaybeError CheckAnchor(const std::string& name, const std::string& anchor) {
  if (anchor == "created_at") return std::nullopt;
  return InvalidParam(name, "Invalid value: '" + anchor + "'. Supported values are: 'created_at'.");
}

ApiError Missing(const std::string& name) {
  return InvalidParam(name, "Missing required parameter: '" + name + "'.",
                      "missing_required_parameter");
}

ApiError OutOfRange(const std::string& name, const std::string& value) {
  return InvalidParam(name, "Invalid value for '" + name +
                                "': expected an integer from 3600 to 2592000, got " + value + ".");
}

MaybeError ReadOutputExpiry(const Json& json, int64_t* seconds) {
  Fields fields(json, "output_expires_after");
  std::string anchor;
  fields.String("anchor", &anchor);
  fields.Int("seconds", seconds);
  if (!fields.ok()) return fields.error();
  if (!fields.Has("anchor")) return Missing("output_expires_after.anchor");
  if (!fields.Has("seconds")) return Missing("output_expires_after.seconds");
  if (*seconds < kExpiresMinS || *seconds > kExpiresMaxS) {
    return OutOfRange("output_expires_after.seconds", std::to_string(*seconds));
  }
  return CheckAnchor("output_expires_after.anchor", anchor);
}

}  // namespace

bool ParseWindow(std::string_view text, int64_t* seconds) {
  if (text.size() < 2 || text.size() > 8) return false;
  int64_t unit = 0;
  switch (text.back()) {
    case 'm':
      unit = 60;
      break;
    case 'h':
      unit = 3600;
      break;
    case 'd':
      unit = 86400;
      break;
    default:
      return false;
  }
  int64_t count = 0;
  if (!ParseCount(text.substr(0, text.size() - 1), &count) || count <= 0) return false;
  *seconds = count * unit;
  return *seconds >= kWindowMinS && *seconds <= kWindowMaxS;
}

std::string WindowText(int64_t seconds) {
  if (seconds % 3600 == 0) return std::to_string(seconds / 3600) + "h";
  if (seconds % 60 == 0) return std::to_string(seconds / 60) + "m";
  return std::to_string(seconds) + "s";
}

MaybeError Parse(std::string_view body, const ParseLimits& limits, BatchRequest* request) {
  Json json;
  if (MaybeError error = ParseBody(body, "/v1/batches", limits.strict, &json, &request->notes)) {
    return error;
  }
  Fields fields(json);
  std::string window;
  fields.String("input_file_id", &request->input_file);
  fields.String("endpoint", &request->endpoint);
  fields.String("completion_window", &window);
  if (!fields.ok()) return fields.error();
  const auto& served = kEndpoints;
  if (std::find(std::begin(served), std::end(served), request->endpoint) == std::end(served)) {
    return InvalidParam("endpoint", "Invalid value: '" + request->endpoint +
                                        "'. Supported values are: '/v1/chat/completions' and "
                                        "'/v1/completions'.");
  }
  if (!ParseWindow(window, &request->window_s)) {
    return InvalidParam("completion_window",
                        "Invalid value: '" + window +
                            "'. Supported values are: '24h', and any other number of m, h or d "
                            "from '1m' to '30d'.");
  }
  if (const Json* metadata = fields.Find("metadata")) {
    if (MaybeError error = ReadMetadata(*metadata, &request->metadata)) return error;
  }
  if (const Json* expiry = fields.Find("output_expires_after")) {
    return ReadOutputExpiry(*expiry, &request->output_expires_after_s);
  }
  return std::nullopt;
}

MaybeError ParseFileForm(const std::map<std::string, std::string>& fields, FileForm* form) {
  constexpr char kAnchor[] = "expires_after[anchor]", kSeconds[] = "expires_after[seconds]";
  for (const auto& [name, value] : fields) {
    if (name == "purpose" || name == kAnchor || name == kSeconds) continue;
    return InvalidParam(name, "Unknown parameter: '" + name + "'.", "unknown_parameter");
  }
  const auto purpose = fields.find("purpose");
  if (purpose == fields.end()) return Missing("purpose");
  if (purpose->second != "batch") {
    return InvalidParam("purpose", "Invalid value: '" + purpose->second +
                                       "'. Supported values are: 'batch'. Files for other "
                                       "purposes are not kept here.");
  }
  form->purpose = purpose->second;
  const auto anchor = fields.find(kAnchor), seconds = fields.find(kSeconds);
  if (anchor == fields.end() && seconds == fields.end()) return std::nullopt;
  if (anchor == fields.end()) return Missing(kAnchor);
  if (seconds == fields.end()) return Missing(kSeconds);
  if (MaybeError error = CheckAnchor(kAnchor, anchor->second)) return error;
  if (!ParseCount(seconds->second, &form->expires_after_s) ||
      form->expires_after_s < kExpiresMinS || form->expires_after_s > kExpiresMaxS) {
    return OutOfRange(kSeconds, "'" + seconds->second + "'");
  }
  return std::nullopt;
}

}  // namespace skein::services::openai
