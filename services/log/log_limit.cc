#include "services/log/log_limit.h"

#include <chrono>
#include <mutex>

namespace skein::services {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct ProcessLimit {
  std::mutex mutex;
  LogLimit limit{kLimitedLinesPerSecond};
};

// Never destroyed, like the log.
ProcessLimit& TheLimit() {
  static auto* limit = new ProcessLimit;
  return *limit;
}

}  // namespace

bool LogLimit::Admit(const std::string& kind, int64_t now_us) {
  Second& second = seconds_[kind];
  if (now_us - second.begin_us >= kSecondUs) {
    second.begin_us = now_us;
    second.written = 0;
  }
  if (second.written < lines_per_second_) {
    ++second.written;
    return true;
  }
  ++second.left_out;
  return false;
}

std::vector<LogLimit::LeftOut> LogLimit::TakeLeftOut(int64_t now_us) {
  std::vector<LeftOut> out;
  for (auto& [kind, second] : seconds_) {
    if (second.left_out == 0 || now_us - second.begin_us < kSecondUs) continue;
    out.push_back({kind, second.left_out});
    second.left_out = 0;
  }
  return out;
}

void LogLimited(const std::string& kind, Level level, std::string_view message,
                std::initializer_list<LogField> fields) {
  LogLeftOut();
  ProcessLimit& process = TheLimit();
  {
    std::lock_guard<std::mutex> lock(process.mutex);
    if (!process.limit.Admit(kind, NowUs())) return;
  }
  Log(level, message, fields);
}

void LogLeftOut(bool at_end) {
  ProcessLimit& process = TheLimit();
  std::vector<LogLimit::LeftOut> left_out;
  {
    std::lock_guard<std::mutex> lock(process.mutex);
    left_out = process.limit.TakeLeftOut(at_end ? INT64_MAX : NowUs());
  }
  for (const LogLimit::LeftOut& one : left_out) {
    LogWarning("too many log lines of one kind; some were dropped",
               {{"kind", one.kind}, {"lines", one.lines}});
  }
}

}  // namespace skein::services
