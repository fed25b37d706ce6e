#include "services/base/log.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace skein::services {
namespace {

struct Config {
  std::string role = "skein";
  Level lowest = Level::kInfo;
};

Config& GetConfig() {
  static Config* config = new Config();
  return *config;
}

void AppendEscaped(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      out->append("\\n");
    } else if (byte < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", byte);
      out->append(buffer);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

struct AppendValue {
  std::string* out;
  void operator()(const std::string& v) const { AppendEscaped(v, out); }
  void operator()(int64_t v) const { absl::StrAppend(out, v); }
  void operator()(uint64_t v) const { absl::StrAppend(out, v); }
  void operator()(double v) const {
    if (std::isfinite(v)) {
      absl::StrAppend(out, v);
    } else {
      out->append("null");
    }
  }
  void operator()(bool v) const { out->append(v ? "true" : "false"); }
  void operator()(const Raw& v) const { out->append(v.json); }
};

constexpr std::string_view NameOf(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace

void InitLog(std::string role, Level lowest) { GetConfig() = {std::move(role), lowest}; }

std::string FormatLogLine(std::string_view timestamp, std::string_view role, Level level,
                          std::string_view message, std::initializer_list<LogField> fields) {
  std::string line = "{\"ts\":";
  AppendEscaped(timestamp, &line);
  line += ",\"level\":";
  AppendEscaped(NameOf(level), &line);
  line += ",\"role\":";
  AppendEscaped(role, &line);
  line += ",\"msg\":";
  AppendEscaped(message, &line);
  for (const LogField& field : fields) {
    line += ',';
    AppendEscaped(field.name, &line);
    line += ':';
    std::visit(AppendValue{&line}, field.value);
  }
  line += '}';
  return line;
}

void Log(Level level, std::string_view message, std::initializer_list<LogField> fields) {
  const Config& config = GetConfig();
  if (level < config.lowest) return;
  std::string line =
      FormatLogLine(absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone()),
                    config.role, level, message, fields);
  line += '\n';
  // One write a line: lines of several threads do not mix, and a full pipe loses the line, not the
  // process.
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace skein::services
