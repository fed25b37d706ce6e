#include "services/skeinctl/planning/trace_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/civil_time.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

using scheduler::SimRequest;
using Fields = std::vector<std::string>;

constexpr int64_t kMaxTokens = int64_t{1} << 40;

absl::Status Bad(const char* field, const std::string& value) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": '", value.substr(0, 40), "'"));
}

absl::Status ReadSeconds(const std::string& text, const char* field, double* seconds) {
  if (!absl::SimpleAtod(text, seconds) || !std::isfinite(*seconds) || *seconds < 0) {
    return Bad(field, text);
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const std::string& text, const char* field, int64_t least,
                        int64_t* tokens) {
  if (!absl::SimpleAtoi(text, tokens) || *tokens < least || *tokens > kMaxTokens) {
    return Bad(field, text);
  }
  return absl::OkStatus();
}

// 2023-11-16 18:15:46.6805900, in seconds since 1970.
absl::Status ReadTimestamp(const std::string& text, const char* field, double* seconds) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, used = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d %2d:%2d:%n", &year, &month, &day, &hour, &minute,
                  &used) != 5 ||
      used == 0) {
    return Bad(field, text);
  }
  const absl::CivilDay date(year, month, day);
  const bool valid = year >= 1970 && date.month() == month && date.day() == day && hour >= 0 &&
                     hour < 24 && minute >= 0 && minute < 60;
  double second = 0;
  if (!valid || !ReadSeconds(text.substr(static_cast<size_t>(used)), field, &second).ok() ||
      second >= 61) {
    return Bad(field, text);
  }
  const auto days = static_cast<double>(date - absl::CivilDay(1970, 1, 1));
  *seconds = days * 86400 + hour * 3600 + minute * 60 + second;
  return absl::OkStatus();
}

struct CsvFormat {
  const char* header;
  std::array<const char*, 3> fields;
  absl::Status (*read_time)(const std::string&, const char*, double*);
};

constexpr CsvFormat kOwn = {"arrival_s,prompt_tokens,output_tokens",
                            {"arrival_s", "prompt_tokens", "output_tokens"},
                            ReadSeconds};
constexpr CsvFormat kAzure = {"TIMESTAMP,ContextTokens,GeneratedTokens",
                              {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
                              ReadTimestamp};

absl::StatusOr<TracedRequest> ParseCsvLine(const CsvFormat& format, const std::string& line) {
  const Fields values = absl::StrSplit(line, ',');
  if (values.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(values.size(), " fields, not 3"));
  }
  TracedRequest traced;
  SimRequest& request = traced.request;
  absl::Status status = format.read_time(values[0], format.fields[0], &request.arrival_s);
  status.Update(ReadTokens(values[1], format.fields[1], 1, &request.prompt_tokens));
  status.Update(ReadTokens(values[2], format.fields[2], 0, &request.output_tokens));
  if (!status.ok()) return status;
  return traced;
}

absl::Status ReadJsonTokens(const nlohmann::json& json, const char* field, int64_t least,
                            int64_t* tokens) {
  const auto it = json.find(field);
  if (it == json.end()) return absl::InvalidArgumentError(absl::StrCat(field, ": missing"));
  // dump: numbers beyond 64 bits and fractions are refused like words.
  return ReadTokens(it->is_number_integer() ? it->dump() : "no integer", field, least, tokens);
}

absl::Status ReadHashIds(const nlohmann::json& json, std::vector<int64_t>* ids) {
  const auto it = json.find("hash_ids");
  if (it == json.end()) return absl::OkStatus();
  if (!it->is_array()) return absl::InvalidArgumentError("hash_ids: not a list");
  for (const nlohmann::json& id : *it) {
    if (!id.is_number_integer() ||
        (id.is_number_unsigned() && id.get<uint64_t>() > uint64_t{INT64_MAX})) {
      return absl::InvalidArgumentError("hash_ids: must be whole numbers");
    }
    ids->push_back(id.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::StatusOr<TracedRequest> ParseMooncakeLine(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  int64_t milliseconds = 0;
  TracedRequest traced;
  SimRequest& request = traced.request;
  absl::Status status = ReadJsonTokens(json, "timestamp", 0, &milliseconds);
  status.Update(ReadJsonTokens(json, "input_length", 1, &request.prompt_tokens));
  status.Update(ReadJsonTokens(json, "output_length", 0, &request.output_tokens));
  status.Update(ReadHashIds(json, &traced.hash_ids));
  if (!status.ok()) return status;
  request.arrival_s = static_cast<double>(milliseconds) * 1e-3;
  return traced;
}

std::string WithoutReturn(absl::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return std::string(line);
}

// Moves the first arrival to 0.
void Order(std::vector<TracedRequest>* requests) {
  std::stable_sort(requests->begin(), requests->end(), [](const auto& a, const auto& b) {
    return a.request.arrival_s < b.request.arrival_s;
  });
  const double first_s = requests->front().request.arrival_s;
  for (auto& [request, hash_ids] : *requests) {
    request.arrival_s = std::round((request.arrival_s - first_s) * 1e6) * 1e-6;
  }
}

absl::StatusOr<std::vector<SimRequest>> WithoutBlocks(
    const absl::StatusOr<std::vector<TracedRequest>>& traced) {
  if (!traced.ok()) return traced.status();
  std::vector<SimRequest> requests;
  for (const TracedRequest& one : *traced) requests.push_back(one.request);
  return requests;
}

}  // namespace

absl::StatusOr<std::vector<TracedRequest>> ParseTraceWithBlocks(std::string_view text) {
  const CsvFormat* csv = nullptr;
  bool mooncake = false;
  std::vector<TracedRequest> requests;
  int64_t number = 0;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    const std::string line = WithoutReturn(part);
    if (line.empty()) continue;
    if (csv == nullptr && !mooncake) {
      if (line == kOwn.header) csv = &kOwn;
      if (line == kAzure.header) csv = &kAzure;
      mooncake = line[0] == '{';
      if (csv != nullptr) continue;
      if (!mooncake) return absl::InvalidArgumentError("line 1: unknown trace format");
    }
    absl::StatusOr<TracedRequest> request =
        mooncake ? ParseMooncakeLine(line) : ParseCsvLine(*csv, line);
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("line %d: %s", number, request.status().message()));
    }
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError("the trace has no requests");
  Order(&requests);
  return requests;
}

absl::StatusOr<std::vector<SimRequest>> ParseTrace(std::string_view text) {
  return WithoutBlocks(ParseTraceWithBlocks(text));
}

absl::StatusOr<std::vector<TracedRequest>> LoadTraceWithBlocks(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("'", path, "' cannot be read"));
  }
  return ParseTraceWithBlocks(text.str());
}

absl::StatusOr<std::vector<SimRequest>> LoadTrace(const std::string& path) {
  return WithoutBlocks(LoadTraceWithBlocks(path));
}

}  // namespace skein::services
