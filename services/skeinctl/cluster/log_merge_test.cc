#include "services/skeinctl/cluster/log_merge.h"

#include <fstream>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

class LogMergeTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) {
    return ::testing::TempDir() + "/" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + name;
  }
  void Write(const std::string& name, const std::string& text, bool append = false) {
    std::ofstream(Path(name), append ? std::ios::app : std::ios::trunc) << text;
  }
  LogMerge Merge(const std::vector<std::string>& names) {
    std::vector<LogReader> readers;
    for (const std::string& name : names) readers.emplace_back(name, Path(name));
    return LogMerge(std::move(readers));
  }
  static std::string Line(int second, const std::string& message, const std::string& more = "") {
    return R"({"ts":"2026-11-22T18:00:0)" + std::to_string(second) +
           R"(.123456Z","level":"info","role":"r","msg":")" + message + "\"" + more + "}\n";
  }
};

TEST_F(LogMergeTest, LinesOfAllFilesComeByTime) {
  Write("a", Line(1, "one") + Line(4, "four") + Line(5, "five"));
  Write("b", Line(2, "two") + Line(3, "three"));
  LogMerge merge = Merge({"a", "b"});
  std::string order;
  while (const auto line = merge.Next()) order += line->fields["msg"].get<std::string>() + " ";
  EXPECT_EQ(order, "one two three four five ");
}

TEST_F(LogMergeTest, WhatIsAppendedComesLaterAndHalfALineWaits) {
  Write("a", Line(1, "one"));
  LogMerge merge = Merge({"a", "none"});
  EXPECT_EQ(merge.Next()->fields["msg"], "one");
  EXPECT_FALSE(merge.Next().has_value());
  const std::string two = Line(2, "two");
  Write("a", two.substr(0, 20), true);
  EXPECT_FALSE(merge.Next().has_value());
  Write("a", two.substr(20), true);
  EXPECT_EQ(merge.Next()->fields["msg"], "two");
  Write("a", Line(3, "anew"));  // the process was restarted
  EXPECT_EQ(merge.Next()->fields["msg"], "anew");
}

TEST_F(LogMergeTest, WhatIsNoJsonKeepsItsPlaceAndIsAWarning) {
  Write("a", Line(1, "one") + "terminate called\n" + Line(3, "three"));
  Write("b", Line(2, "two"));
  LogMerge merge = Merge({"a", "b"});
  merge.Next();
  const LogLine line = *merge.Next();
  EXPECT_EQ(line.raw, "terminate called");
  EXPECT_EQ(TextOf(line, 1), "18:00:01.123 a  warning  terminate called");
  EXPECT_EQ(JsonOf(line), R"({"process":"a","ts":"2026-11-22T18:00:01.123456Z",)"
                          R"("level":"warning","msg":"terminate called"})");
}

TEST_F(LogMergeTest, TextShowsTheFieldsAndJsonTheLine) {
  Write("a", Line(1, "did it", R"(,"request_id":"7/1","why":"no room","n":3)"));
  const LogLine line = *LogReader("a", Path("a")).Next();
  EXPECT_EQ(TextOf(line, 3),
            "18:00:01.123 a    info     did it  request_id=7/1  why=\"no room\"  n=3");
  EXPECT_EQ(nlohmann::json::parse(JsonOf(line))["process"], "a");
}

TEST_F(LogMergeTest, AFilterTakesLevelsAndRequests) {
  Write("a", Line(1, "x", R"(,"request_id":"7/1")") + Line(2, "y", R"(,"id":"cmpl-1")") +
                 Line(3, "z", R"(,"request_id":"7/11")"));
  LogReader reader("a", Path("a"));
  LogFilter filter{.requests = {"7/1", "cmpl-1"}};
  EXPECT_TRUE(filter.Passes(*reader.Next()));
  EXPECT_TRUE(filter.Passes(*reader.Next()));
  const LogLine other = *reader.Next();
  EXPECT_FALSE(filter.Passes(other));
  EXPECT_TRUE(LogFilter{.level = LogLevel::kInfo}.Passes(other));
  EXPECT_FALSE(LogFilter{.level = LogLevel::kWarning}.Passes(other));
  EXPECT_FALSE(ParseLogLevel("loud").ok());
}

}  // namespace
}  // namespace skein::services
