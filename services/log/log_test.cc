#include "services/log/log.h"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/log/log_thread.h"

namespace skein::services {
namespace {

// Captures stderr: while it lives, stderr is `write_end`, and the test reads from `read_end`.
// Restarts the log. Owns both ends.
class CapturedLog {
 public:
  CapturedLog() : CapturedLog(NewPipe()) {}
  explicit CapturedLog(std::array<int, 2> ends) : ends_(ends), stderr_(dup(STDERR_FILENO)) {
    FlushLog();
    dup2(ends_[1], STDERR_FILENO);
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    InitLog("router", Level::kInfo);
  }
  ~CapturedLog() {
    FlushLog();
    dup2(stderr_, STDERR_FILENO);
    for (const int one : {ends_[0], ends_[1], stderr_}) close(one);
    InitLog("skein", Level::kInfo);
  }

  // All lines so far; they must fit into the pipe's buffer.
  std::string Read() {
    FlushLog();
    return ReadNow();
  }

  // Waits until there is something to read.
  std::string ReadSome() {
    pollfd some{ends_[0], POLLIN, 0};
    poll(&some, 1, -1);
    return ReadNow();
  }

 private:
  static std::array<int, 2> NewPipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    return ends;
  }
  std::string ReadNow() {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(ends_[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

  const std::array<int, 2> ends_;
  const int stderr_;
};

std::vector<nlohmann::json> Lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
}

TEST(Log, ATextLineIsReadByPeople) {
  CapturedLog log;
  InitLog("router", Level::kInfo, LogFormat::kText);
  LogInfo("listening",
          {{"port", 8000}, {"host", "a b"}, {"ok", true}, {"raw", Raw{"[1]"}}, {"e", ""}});
  const std::string line = log.Read();
  EXPECT_EQ(line.substr(std::string("2026-11-22T17:57:40.123456Z").size()),
            " info router listening port=8000 host=\"a b\" ok=true raw=[1] e=\"\"\n");
}

TEST(Log, ALineIsOneJsonObjectWhateverItHolds) {
  CapturedLog log;
  LogWarning(
      "a \"quoted\"\nmessage\x01",
      {{"n", 3}, {"ratio", 0.5}, {"nan", std::nan("")}, {"ok", true}, {"raw", Raw{"[1,2]"}}});
  const std::string text = log.Read();
  ASSERT_EQ(Lines(text).size(), 1U) << text;
  const nlohmann::json line = Lines(text).front();
  EXPECT_EQ(line["role"], "router");
  EXPECT_EQ(line["msg"], "a \"quoted\"\nmessage\x01");
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["n"], 3);
  EXPECT_TRUE(line["nan"].is_null());
  EXPECT_EQ(line["raw"][1], 2);
  EXPECT_EQ(line["ts"].get<std::string>().size(),
            std::string("2026-11-22T17:57:40.123456Z").size());
}

// What a client sends is shown as it is, and obeyed by no terminal, in both formats.
TEST(Log, NoValueMovesTheCursorOrBeginsALine) {
  const std::string hostile =
      "a\n2026-11-27 info forged\r\x1b[2J\x7f\xc2\x9b"
      "2J\xe2\x80\xa8\xe2\x80\xae"
      "b\xe2\x81\xa6\x9b"
      "\xc3\xa9";
  for (const LogFormat format : {LogFormat::kJson, LogFormat::kText}) {
    InitLog("router", Level::kInfo, format);
    ::testing::internal::CaptureStderr();
    LogInfo("request", {{"tenant", hostile},
                        {"path",
                         "\x9b"
                         "2J"}});
    FlushLog();
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    for (const char* bad : {"\r", "\x1b", "\x7f", "\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xae",
                            "\xe2\x81\xa6", " \x9b", "=\x9b"}) {
      EXPECT_EQ(text.find(bad), std::string::npos) << text;
    }
    EXPECT_NE(text.find("\\u009b2J\\u2028\\u202eb\\u2066"), std::string::npos) << text;
    EXPECT_NE(text.find("\xc3\xa9"), std::string::npos) << "letters stay as they are: " << text;
    if (format == LogFormat::kJson) {
      EXPECT_FALSE(nlohmann::json::parse(text, nullptr, false).is_discarded()) << text;
    }
  }
  InitLog("skein", Level::kInfo, LogFormat::kJson);
}

TEST(Log, BytesThatAreNotUtf8AreReplaced) {
  CapturedLog log;
  LogInfo("from a client", {{"header", "a\xff{}z"}});
  EXPECT_EQ(Lines(log.Read()).at(0)["header"], "a\xef\xbf\xbd{}z");
}

TEST(Log, LinesBelowTheLowestLevelAreNotWritten) {
  CapturedLog log;
  InitLog("router", Level::kWarning);
  LogInfo("no");
  LogError("yes");
  ASSERT_EQ(Lines(log.Read()).size(), 1U);
}

// Counts of a flood of lines, as read back.
struct Flood {
  int64_t written = 0;
  int64_t told = 0;  // reported as lost
};

Flood ReadFlood(int64_t lines, CapturedLog* log) {
  Flood flood;
  std::string text;
  while (flood.written + flood.told < lines) {
    text += log->ReadSome();
    const size_t end = text.rfind('\n') + 1;
    for (const nlohmann::json& line : Lines(text.substr(0, end))) {
      if (line["msg"] == "big") ++flood.written;
      if (line.contains("lines")) flood.told += line["lines"].get<int64_t>();
    }
    text.erase(0, end);
  }
  return flood;
}

// This test and the next would hang if the log blocked.
TEST(Log, AFullPipeStopsNobodyAndALineTellsHowManyWereLost) {
  CapturedLog log;
  const int64_t lost_before = LostLogLines();
  const std::string filler(50'000, 'x');
  const auto lines = static_cast<int64_t>(LogThread::kBytesMax / filler.size() * 5 / 4);
  for (int64_t i = 0; i < lines; ++i) LogInfo("big", {{"i", i}, {"filler", filler}});
  const Flood flood = ReadFlood(lines, &log);
  EXPECT_GT(flood.written, lines / 2);
  EXPECT_GT(flood.told, 0);
  EXPECT_EQ(flood.written + flood.told, lines);
  EXPECT_EQ(LostLogLines() - lost_before, flood.told);
  LogInfo("after");
  EXPECT_EQ(Lines(log.Read()).at(0)["msg"], "after");
}

// Unlike a pipe, a terminal cannot be reopened without blocking.
TEST(Log, AStoppedTerminalStopsNobodyAndLosesNothingThatFits) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int screen = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(screen, 0);
  termios raw{};
  tcgetattr(screen, &raw);
  cfmakeraw(&raw);
  tcsetattr(screen, TCSANOW, &raw);
  CapturedLog log({terminal, screen});
  ASSERT_EQ(tcflow(screen, TCOOFF), 0);
  constexpr int kLines = 100;
  for (int i = 0; i < kLines; ++i) LogInfo("big", {{"filler", std::string(1000, 'x')}});
  ASSERT_EQ(tcflow(screen, TCOON), 0);
  const Flood flood = ReadFlood(kLines, &log);
  EXPECT_EQ(flood.written, kLines);
}

// No log line could report this.
TEST(Log, LinesThatCannotBeWrittenAreCounted) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  const int64_t lost_before = LostLogLines();
  {
    CapturedLog log({open("/dev/null", O_RDONLY), full});
    for (int i = 0; i < 10; ++i) LogInfo("a line");
    FlushLog();
    EXPECT_EQ(LostLogLines() - lost_before, 10);
  }
}

// Reads as fast as it writes, so the queue is never empty: a flush that waited for an empty queue
// would wait as long as others log.
TEST(Log, AFlushWaitsForNoLineThatComesAfterIt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  CapturedLog log(ends);
  auto* const thread = new LogThread([](int64_t) { return std::string("lost\n"); });
  const std::string line = std::string(10'000, 'x') + '\n';
  while (thread->lost() == 0) thread->Push(line);
  auto flushed =
      std::async(std::launch::async, [thread] { return thread->Flush(std::chrono::seconds(20)); });
  std::string buffer(line.size(), ' ');
  while (flushed.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (read(ends[0], buffer.data(), buffer.size()) > 0) thread->Push(line);
  }
  EXPECT_TRUE(flushed.get());
  while (!thread->Flush(std::chrono::milliseconds(0))) {
    if (read(ends[0], buffer.data(), buffer.size()) < 0) std::this_thread::yield();
  }
}

class LogDeathTest : public ::testing::Test {
 protected:
  LogDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(LogDeathTest, LinesBeforeAnAbortAreWritten) {
  const auto die = [] {
    FlushLogOnFatalSignals();
    for (int i = 0; i < 100; ++i) LogInfo("a line");
    LogInfo("last words");
    std::abort();
  };
  EXPECT_EXIT(die(), ::testing::KilledBySignal(SIGABRT), "last words");
}

TEST_F(LogDeathTest, LinesBeforeTheExitAreWritten) {
  const auto leave = [] {
    for (int i = 0; i < 100; ++i) LogInfo("a line");
    LogInfo("last words");
    std::exit(3);
  };
  EXPECT_EXIT(leave(), ::testing::ExitedWithCode(3), "last words");
}

}  // namespace
}  // namespace skein::services
