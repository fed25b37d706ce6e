// A limit for log lines that a client can cause in any number: of each kind at most so many are
// written a second, and the rest are counted. So a flood of bad requests does not fill the disk.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/log/log.h"

namespace skein::services {

// The rule, without a clock. One thread at a time. There are few kinds, and a client cannot name
// one.
class LogLimit {
 public:
  explicit LogLimit(int64_t lines_per_second) : lines_per_second_(lines_per_second) {}

  // Whether a line of this kind may be written now. If not, it is counted.
  bool Admit(const std::string& kind, int64_t now_us);

  // The lines that were left out in seconds that are over; each is told once. `now_us` of INT64_MAX
  // ends the second.
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

// Lines of one kind that are written a second, by each process.
inline constexpr int64_t kLimitedLinesPerSecond = 10;

// As Log, within the limit. Thread-safe.
void LogLimited(const std::string& kind, Level level, std::string_view message,
                std::initializer_list<LogField> fields);

// Writes a line for each kind that had lines left out in a second that is over; with `at_end` also
// in the present second. Called at intervals, since no line may follow a flood. Thread-safe.
void LogLeftOut(bool at_end = false);

}  // namespace skein::services
