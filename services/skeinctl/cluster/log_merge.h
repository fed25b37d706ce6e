// Merges the logs of several processes by time.
#pragma once

#include <cstddef>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace skein::services {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
absl::StatusOr<LogLevel> ParseLogLevel(const std::string& name);

struct LogLine {
  std::string process;
  std::string time;  // from the line; for a line that is not JSON, the previous line's time
  LogLevel level = LogLevel::kInfo;
  nlohmann::ordered_json fields;  // null if the line is not JSON: from a library or a crash
  std::string raw;
};

// "18:00:00.123 prefill-0  warning  the message  key=value ...", without a newline.
std::string TextOf(const LogLine& line, size_t process_width);
// The line's JSON object with the process name first.
std::string JsonOf(const LogLine& line);

struct LogFilter {
  LogLevel level = LogLevel::kDebug;
  std::set<std::string> requests;  // names of one request; empty: all lines
  bool Passes(const LogLine& line) const;
};

// Reads a file line by line, including lines appended later. An incomplete line waits. A file that
// became shorter is read from its start.
class LogReader {
 public:
  LogReader(std::string process, std::string path);

  const std::string& process() const { return process_; }
  std::optional<LogLine> Next();

 private:
  LogLine Parse(std::string text);

  const std::string process_;
  const std::string path_;
  std::ifstream file_;
  std::streamoff read_ = 0;
  std::string last_time_;
};

// The next line in time order over all readers, until no file has more.
class LogMerge {
 public:
  explicit LogMerge(std::vector<LogReader> readers);
  std::optional<LogLine> Next();

 private:
  std::vector<LogReader> readers_;
  std::vector<std::optional<LogLine>> heads_;  // by reader
};

}  // namespace skein::services
