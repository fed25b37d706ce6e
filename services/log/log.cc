#include "services/log/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/log/log_thread.h"

namespace skein::services {
namespace {

// The character at the beginning of `text` (UTF-8), if a terminal may take it for a command or may
// show what follows in another way than it is: DEL, C1 controls, line separators, marks of
// direction. 0: it is another one. `bytes`: its length, unless 0 is returned.
uint32_t Unshown(std::string_view text, size_t* bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  *bytes = 1;
  if (at(0) == 0x7f) return 0x7f;
  *bytes = 2;
  if (text.size() >= 2 && at(0) == 0xc2 && at(1) < 0xa0) return at(1);
  *bytes = 3;
  if (text.size() < 3 || at(0) != 0xe2) return 0;
  const uint32_t point = 0x2000u | (at(1) & 0x3fu) << 6 | (at(2) & 0x3fu);
  const bool marks = point == 0x200e || point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
                     (point >= 0x2066 && point <= 0x2069);
  return marks ? point : 0;
}

// A JSON string that shows what it holds; bytes that are not UTF-8 become U+FFFD.
std::string Quoted(std::string_view text) {
  const std::string json =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size();) {
    size_t bytes = 1;
    const uint32_t point = Unshown(std::string_view(json).substr(i), &bytes);
    if (point == 0) {
      out.push_back(json[i++]);
    } else {
      absl::StrAppend(&out, "\\u", absl::Hex(point, absl::kZeroPad4));
      i += bytes;
    }
  }
  return out;
}

// Set before threads start and never destroyed, because threads may log while the process exits.
std::string& Role() {
  static auto* const role = new std::string("skein");
  return *role;
}
LogFormat& Format() {
  static LogFormat format = LogFormat::kJson;
  return format;
}

// A value in a text line: as it is, or quoted if the line would be ambiguous.
std::string Word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '=';
  });
  return plain ? text : Quoted(text);
}

struct AppendValue {
  std::string* out;
  void operator()(const std::string& v) const {
    *out += Format() == LogFormat::kText ? Word(v) : Quoted(v);
  }
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

constexpr spdlog::level::level_enum LevelOf(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

constexpr const char* kJsonLine = R"({"ts":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l","role":"%n",%v})";
constexpr const char* kTextLine = "%Y-%m-%dT%H:%M:%S.%fZ %l %n %v";

std::unique_ptr<spdlog::formatter> NewFormatter() {
  return std::make_unique<spdlog::pattern_formatter>(
      Format() == LogFormat::kText ? kTextLine : kJsonLine, spdlog::pattern_time_type::utc, "\n");
}

// Message and fields, as members of a JSON object or as text.
std::string ContentOf(std::string_view message, std::initializer_list<LogField> fields) {
  const bool text = Format() == LogFormat::kText;
  std::string content = text ? std::string(message) : "\"msg\":" + Quoted(message);
  for (const LogField& field : fields) {
    content += text ? ' ' : ',';
    content += text ? std::string(field.name) : Quoted(field.name);
    content += text ? '=' : ':';
    std::visit(AppendValue{&content}, field.value);
  }
  return content;
}

std::string LostLine(int64_t lines) {
  const std::string content =
      ContentOf("log lines dropped: standard error was not read fast enough", {{"lines", lines}});
  spdlog::memory_buf_t line;
  NewFormatter()->format({Role(), spdlog::level::warn, content}, line);
  return {line.data(), line.size()};
}

// How long an exiting process waits for the reader of its log.
constexpr std::chrono::milliseconds kPatienceAtExit{1000};
constexpr std::chrono::milliseconds kPatienceInSignal{200};

LogThread& Thread() {
  static LogThread* const thread = [] {
    std::atexit([] { FlushLog(); });
    return new LogThread(LostLine);
  }();
  return *thread;
}

class ThreadSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    Thread().Push({line.data(), line.size()});
  }
  void flush_() override {}
};

spdlog::logger* NewLogger(const std::string& role, Level lowest) {
  auto* logger = new spdlog::logger(role, std::make_shared<ThreadSink>());
  logger->set_level(LevelOf(lowest));
  logger->set_formatter(NewFormatter());
  return logger;
}

spdlog::logger*& Logger() {
  static spdlog::logger* logger = NewLogger(Role(), Level::kInfo);
  return logger;
}

constexpr int kFatalSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction actions_before[NSIG];

// The signal's previous action happens after this handler returns.
void FlushAndDie(int signal) {
  Thread().Flush(kPatienceInSignal);
  sigaction(signal, &actions_before[signal], nullptr);
  raise(signal);
}

}  // namespace

void InitLog(std::string role, Level lowest, LogFormat format) {
  FlushLog();
  Role() = std::move(role);
  Format() = format;
  spdlog::logger*& logger = Logger();
  delete logger;
  logger = NewLogger(Role(), lowest);
}

void FlushLog() { Thread().Flush(kPatienceAtExit); }

void FlushLogOnFatalSignals() {
  Thread();  // creates the thread here, not in a signal handler
  struct sigaction action {};
  action.sa_handler = FlushAndDie;
  for (const int signal : kFatalSignals) sigaction(signal, &action, &actions_before[signal]);
}

int64_t LostLogLines() { return Thread().lost(); }

void Log(Level level, std::string_view message, std::initializer_list<LogField> fields) {
  spdlog::logger* logger = Logger();
  if (!logger->should_log(LevelOf(level))) return;
  const std::string content = ContentOf(message, fields);
  logger->log(LevelOf(level), spdlog::string_view_t(content));
}

}  // namespace skein::services
