// Log lines of which a client may cause any number: at most so many a second are written of each
// kind, and the rest are counted, so that a flood of bad requests does not fill the disk.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/log.h"

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

// A line for each kind of which lines were left out in a second that is over; `at_end`: or in this
// one. Called now and then, since a flood may have no line after it. Thread-safe.
void LogLeftOut(bool at_end = false);

}  // namespace skein::services
