#include "services/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

// Stderr is a pipe while it lives; the log begins anew in it.
class CapturedLog {
 public:
  CapturedLog() : stderr_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(pipe_), 0);
    dup2(pipe_[1], STDERR_FILENO);
    fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    InitLog("router", Level::kInfo);
  }
  ~CapturedLog() {
    dup2(stderr_, STDERR_FILENO);
    for (const int one : {pipe_[0], pipe_[1], stderr_}) close(one);
    InitLog("skein", Level::kInfo);
  }

  // What the pipe holds now.
  std::string Read() {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(pipe_[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

 private:
  const int stderr_;
  int pipe_[2] = {};
};

std::vector<nlohmann::json> Lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
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

// With a pipe that nobody reads, this test would not end if the log waited.
TEST(Log, AFullPipeLosesLinesAndTheNextOneThatFitsSaysHowMany) {
  CapturedLog log;
  const std::string filler(50'000, 'x');
  for (int i = 0; i < 10; ++i) LogInfo("big", {{"i", i}, {"filler", filler}});
  std::string text = log.Read();
  LogInfo("after");
  text += log.Read();
  int64_t big = 0, told = 0, after = 0;
  for (const nlohmann::json& line : Lines(text)) {
    if (line["msg"] == "big") ++big;
    if (line["msg"] == "after") ++after;
    if (line.contains("lines")) told += line["lines"].get<int64_t>();
  }
  EXPECT_GT(told, 0);
  EXPECT_EQ(big + told, 10);
  EXPECT_EQ(after, 1);
}

}  // namespace
}  // namespace skein::services
