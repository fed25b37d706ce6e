#include "services/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <cmath>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/stderr_writer.h"

namespace skein::services {
namespace {

// A JSON string; bytes that are not UTF-8 become U+FFFD.
std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct AppendValue {
  std::string* out;
  void operator()(const std::string& v) const { *out += Quoted(v); }
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

class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (dropped_ > 0 && WriteLine(DroppedLines(message))) dropped_ = 0;
    if (dropped_ > 0 || !WriteLine(message)) ++dropped_;
  }
  void flush_() override {}

 private:
  spdlog::details::log_msg DroppedLines(const spdlog::details::log_msg& next) {
    told_ = absl::StrCat(R"("msg":"log lines were dropped, since nobody read them","lines":)",
                         dropped_);
    spdlog::details::log_msg message = next;
    message.level = spdlog::level::warn;
    message.payload = told_;
    return message;
  }
  bool WriteLine(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    return writer_.Write({line.data(), line.size()});
  }

  StderrWriter writer_;
  std::string told_;
  int64_t dropped_ = 0;
};

spdlog::logger* NewLogger(const std::string& role, Level lowest) {
  auto* logger = new spdlog::logger(role, std::make_shared<StderrSink>());
  logger->set_level(LevelOf(lowest));
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      R"({"ts":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l","role":"%n",%v})",
      spdlog::pattern_time_type::utc, "\n"));
  return logger;
}

// Never destroyed: threads may log while the process ends.
spdlog::logger*& Logger() {
  static spdlog::logger* logger = NewLogger("skein", Level::kInfo);
  return logger;
}

}  // namespace

void InitLog(std::string role, Level lowest) {
  spdlog::logger*& logger = Logger();
  delete logger;
  logger = NewLogger(role, lowest);
}

void Log(Level level, std::string_view message, std::initializer_list<LogField> fields) {
  spdlog::logger* logger = Logger();
  if (!logger->should_log(LevelOf(level))) return;
  std::string members = "\"msg\":" + Quoted(message);
  for (const LogField& field : fields) {
    members += ',';
    members += Quoted(field.name);
    members += ':';
    std::visit(AppendValue{&members}, field.value);
  }
  logger->log(LevelOf(level), spdlog::string_view_t(members));
}

}  // namespace skein::services
