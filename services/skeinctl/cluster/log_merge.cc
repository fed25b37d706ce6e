#include "services/skeinctl/cluster/log_merge.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string StringField(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

// "2026-11-22T18:00:00.123456Z" to "18:00:00.123"; other formats unchanged.
std::string ShortTime(const std::string& time) {
  const size_t day_end = time.find('T');
  return day_end == std::string::npos ? time : time.substr(day_end + 1, 12);
}

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(const std::string& name) {
  const auto it = std::find(std::begin(kLevels), std::end(kLevels), name);
  if (it == std::end(kLevels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--level: '", name, "' is not debug, info, warning or error"));
  }
  return static_cast<LogLevel>(it - std::begin(kLevels));
}

std::string TextOf(const LogLine& line, size_t process_width) {
  std::string text = absl::StrCat(ShortTime(line.time), " ", Padded(line.process, process_width),
                                  "  ", Padded(kLevels[static_cast<size_t>(line.level)], 7), "  ");
  if (line.fields.is_null()) return text + line.raw;
  text += StringField(line.fields, "msg");
  for (const auto& [key, value] : line.fields.items()) {
    if (key == "ts" || key == "level" || key == "role" || key == "msg") continue;
    const std::string word = value.is_string() ? value.get<std::string>() : "";
    const bool plain = !word.empty() && word.find_first_of(" \"\n=") == std::string::npos;
    absl::StrAppend(&text, "  ", key, "=", plain ? word : Dump(value));
  }
  return text;
}

std::string JsonOf(const LogLine& line) {
  Json json = {{"process", line.process}};
  if (line.fields.is_null()) {
    json["ts"] = line.time;
    json["level"] = kLevels[static_cast<size_t>(line.level)];
    json["msg"] = line.raw;
  } else {
    json.update(line.fields);
  }
  return Dump(json);
}

bool LogFilter::Passes(const LogLine& line) const {
  if (line.level < level) return false;
  if (requests.empty()) return true;
  return line.fields.is_object() &&
         std::any_of(line.fields.begin(), line.fields.end(), [this](const Json& value) {
           return value.is_string() && requests.count(value.get<std::string>()) > 0;
         });
}

LogReader::LogReader(std::string process, std::string path)
    : process_(std::move(process)), path_(std::move(path)), file_(path_, std::ios::binary) {}

std::optional<LogLine> LogReader::Next() {
  if (!file_.is_open()) file_.open(path_, std::ios::binary);
  file_.clear();
  std::error_code error;
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path_, error));
  if (error) return std::nullopt;
  if (size < read_) read_ = 0;
  file_.seekg(read_);
  std::string text;
  if (!std::getline(file_, text) || file_.eof()) return std::nullopt;
  read_ += static_cast<std::streamoff>(text.size()) + 1;
  return Parse(std::move(text));
}

// A line that is not a log line counts as a warning: it may explain the process's end.
LogLine LogReader::Parse(std::string text) {
  LogLine line{.process = process_,
               .time = last_time_,
               .level = LogLevel::kWarning,
               .fields = nullptr,
               .raw = std::move(text)};
  Json json = Json::parse(line.raw, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return line;
  const std::string time = StringField(json, "ts");
  if (!time.empty()) line.time = last_time_ = time;
  const auto level = ParseLogLevel(StringField(json, "level"));
  line.level = level.ok() ? *level : LogLevel::kInfo;
  line.fields = std::move(json);
  return line;
}

LogMerge::LogMerge(std::vector<LogReader> readers)
    : readers_(std::move(readers)), heads_(readers_.size()) {}

std::optional<LogLine> LogMerge::Next() {
  std::optional<LogLine>* first = nullptr;
  for (size_t i = 0; i < readers_.size(); ++i) {
    if (!heads_[i].has_value()) heads_[i] = readers_[i].Next();
    if (!heads_[i].has_value()) continue;
    if (first == nullptr || heads_[i]->time < (*first)->time) first = &heads_[i];
  }
  return first == nullptr ? std::nullopt : std::exchange(*first, std::nullopt);
}

}  // namespace skein::services
