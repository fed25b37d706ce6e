// Logs go to stderr, one JSON object per line, or as text for people (--log-format):
//
//   {"ts":"2026-11-22T22:17:45.716160Z","level":"info","role":"router","msg":"listening","port":8000}
//   2026-11-22T22:17:45.716160Z info router listening port=8000
//
// Thread-safe. spdlog formats the lines (log.cc); a separate thread writes them one by one. Logging
// never blocks on a slow pipe, terminal or disk: the queue holds at most 4 MiB. Further lines are
// dropped and counted, and a log line gives the number (log_thread.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace skein::services {

enum class Level { kDebug, kInfo, kWarning, kError };

// A named value. Raw holds JSON text that is written as it is.
struct Raw {
  std::string json;
};
using LogValue = std::variant<std::string, int64_t, uint64_t, double, bool, Raw>;

struct LogField {
  std::string_view name;
  LogValue value;

  LogField(std::string_view n, std::string_view v) : name(n), value(std::string(v)) {}
  LogField(std::string_view n, const std::string& v) : name(n), value(v) {}
  LogField(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
  LogField(std::string_view n, bool v) : name(n), value(v) {}
  LogField(std::string_view n, double v) : name(n), value(v) {}
  LogField(std::string_view n, int v) : name(n), value(int64_t{v}) {}
  LogField(std::string_view n, int64_t v) : name(n), value(v) {}
  LogField(std::string_view n, uint64_t v) : name(n), value(v) {}
  LogField(std::string_view n, Raw v) : name(n), value(std::move(v)) {}
};

enum class LogFormat { kJson, kText };

// Call once, before threads start. `role` is in every line; lines below `lowest` are not written.
void InitLog(std::string role, Level lowest, LogFormat format = LogFormat::kJson);

void Log(Level level, std::string_view message, std::initializer_list<LogField> fields = {});

// Waits until all lines so far are written, at most one second. Runs automatically at exit(); call
// it before _exit().
void FlushLog();

// Installs handlers for SIGABRT, SIGSEGV, SIGBUS, SIGFPE and SIGILL: they wait for the lines so
// far, at most 0.2 s, and then take the previous action. Call in main, before threads start.
void FlushLogOnFatalSignals();

// Lines of this process that were dropped or could not be written.
int64_t LostLogLines();

inline void LogInfo(std::string_view m, std::initializer_list<LogField> f = {}) {
  Log(Level::kInfo, m, f);
}
inline void LogWarning(std::string_view m, std::initializer_list<LogField> f = {}) {
  Log(Level::kWarning, m, f);
}
inline void LogError(std::string_view m, std::initializer_list<LogField> f = {}) {
  Log(Level::kError, m, f);
}

}  // namespace skein::services
