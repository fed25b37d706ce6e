// The logs of several processes as one, by time.
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
  std::string time;  // of the line; of the one before it where a line is no JSON object
  LogLevel level = LogLevel::kInfo;
  nlohmann::ordered_json fields;  // null where the line is no JSON object: a library's or a crash's
  std::string raw;
};

// "18:00:00.123 prefill-0  warning  the message  key=value ...", without a newline.
std::string TextOf(const LogLine& line, size_t process_width);
// The line's own object with its process in front.
std::string JsonOf(const LogLine& line);

struct LogFilter {
  LogLevel level = LogLevel::kDebug;
  std::set<std::string> requests;  // names of one request; empty: every line
  bool Passes(const LogLine& line) const;
};

// Reads one file line by line, also what is appended later. A line that is not ended yet waits; a
// file that became shorter is read from its start.
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

// The earliest line of all readers, then the next, until no file has one more.
class LogMerge {
 public:
  explicit LogMerge(std::vector<LogReader> readers);
  std::optional<LogLine> Next();

 private:
  std::vector<LogReader> readers_;
  std::vector<std::optional<LogLine>> heads_;  // by reader
};

}  // namespace skein::services
