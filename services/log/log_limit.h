// A rate limit for log lines that clients can cause in any number. A fixed number of each kind is
// written per second and the rest are counted, so a flood of bad requests does not fill the disk.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/log/log.h"

namespace skein::services {

// The rule, without a clock. One thread at a time. Kinds are few and fixed; a client cannot choose
// one.
class LogLimit {
 public:
  explicit LogLimit(int64_t lines_per_second) : lines_per_second_(lines_per_second) {}

  // Whether a line of this kind may be written now. Counts it if not.
  bool Admit(const std::string& kind, int64_t now_us);

  // Dropped lines of past seconds; each is returned once. A `now_us` of INT64_MAX also ends the
  // current second.
  struct LeftOut {
    std::string kind;
    int64_t lines = 0;
  };
  std::vector<LeftOut> TakeLeftOut(int64_t now_us);

 private:
  struct Second {
    int64_t begin_us = 0;
    int64_t written = 0;
    int64_t left_out = 0;
  };
  const int64_t lines_per_second_;
  std::map<std::string, Second> seconds_;
};

// Lines of one kind that each process writes per second.
inline constexpr int64_t kLimitedLinesPerSecond = 10;

// Like Log, within the limit. Thread-safe.
void LogLimited(const std::string& kind, Level level, std::string_view message,
                std::initializer_list<LogField> fields);

// Writes a line for each kind that dropped lines in a past second; with `at_end` also in the
// current second. Call at intervals, because no line may follow a flood. Thread-safe.
void LogLeftOut(bool at_end = false);

}  // namespace skein::services
