// Logs are one JSON object a line on stderr: {"ts":…,"level":…,"role":…,"msg":…, fields…}.
// Thread-safe. spdlog does the work (log.cc). A line is written by one write. If stderr is a pipe
// or a socket that is full, the line is dropped, since a service does not wait for its log; when
// there is room again, a line says how many were dropped.
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

// Set once, before threads start: the role that every line names, and the lowest level that is
// written.
void InitLog(std::string role, Level lowest);

void Log(Level level, std::string_view message, std::initializer_list<LogField> fields = {});

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
