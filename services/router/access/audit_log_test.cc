// Lines are whole, in order, and survive rotation; a disk that refuses them is told and harms
// nothing else.
#include "services/router/access/audit_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/base/file.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;
constexpr int64_t kNow = 1'795'817'700'123'456;  // 2026-11-27T22:15:00.123456Z

std::string PathOf(const std::string& name) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/audit_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder + "/audit.jsonl";
}

std::vector<Json> LinesOf(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream text(ReadFile(path).value_or(""));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

AuditRecord Record(int64_t number) {
  AuditRecord record;
  record.tenant = "t";
  record.outcome = "finished";
  record.prompt_tokens = number;
  return record;
}

TEST(AuditLogTest, ALineSaysWhoseRequestItWasAndWhatItUsed) {
  const AuditRecord record = {.tenant = "search",
                              .key_id = "k1",
                              .request_id = "req-\"1\"\n",
                              .path = "/v1/completions",
                              .model = "m\xff",
                              .outcome = "refused",
                              .code = "rate_limit_exceeded",
                              .status = 429,
                              .prompt_tokens = 3,
                              .output_tokens = 4,
                              .took_us = 5,
                              .offline = true};
  const std::string line = AuditLine(record, kNow);
  EXPECT_EQ(line.find('\n'), std::string::npos) << "no client can make a line of its own";
  const Json json = Json::parse(line);
  const Json wanted = {{"time", "2026-11-27T22:15:00.123456Z"},
                       {"tenant", "search"},
                       {"key", "k1"},
                       {"request_id", "req-\"1\"\n"},
                       {"path", "/v1/completions"},
                       {"model", "m\xEF\xBF\xBD"},
                       {"status", 429},
                       {"outcome", "refused"},
                       {"code", "rate_limit_exceeded"},
                       {"prompt_tokens", 3},
                       {"output_tokens", 4},
                       {"took_us", 5},
                       {"offline", true}};
  EXPECT_EQ(json, wanted);
}

TEST(AuditLogTest, LinesAreAppendedForTheUserAlone) {
  const std::string path = PathOf("append");
  for (int start = 0; start < 2; ++start) {
    auto log = AuditLog::Open({.path = path});
    ASSERT_TRUE(log.ok()) << log.status();
    for (int i = 0; i < 100; ++i) (*log)->Record(Record(start * 100 + i));
    (*log)->Flush();
    EXPECT_EQ((*log)->counts().written, 100u);
    EXPECT_FALSE((*log)->counts().failing);
  }
  const std::vector<Json> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(lines[static_cast<size_t>(i)]["prompt_tokens"], i);
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST(AuditLogTest, APartOfALineThatACrashLeftGetsAnEnd) {
  const std::string path = PathOf("torn");
  ASSERT_TRUE(WriteFile(path, "{\"tenant\":\"a\"}\n{\"ten").ok());
  auto log = AuditLog::Open({.path = path});
  ASSERT_TRUE(log.ok());
  (*log)->Record(Record(7));
  (*log)->Flush();
  const std::string text = *ReadFile(path);
  EXPECT_EQ(text.rfind("{\"tenant\":\"a\"}\n{\"ten\n{\"time\":", 0), 0u) << text;
}

TEST(AuditLogTest, AnOpenedAnewPathIsWrittenAndTheRenamedFileIsWhole) {
  const std::string path = PathOf("reopen");
  auto log = AuditLog::Open({.path = path});
  ASSERT_TRUE(log.ok());
  (*log)->Record(Record(1));
  (*log)->Flush();
  ASSERT_EQ(std::rename(path.c_str(), (path + ".1").c_str()), 0);
  (*log)->Record(Record(2));
  (*log)->Flush();
  (*log)->Reopen();
  (*log)->Record(Record(3));
  (*log)->Flush();
  EXPECT_EQ(LinesOf(path + ".1").size() + LinesOf(path).size(), 3u);
  EXPECT_EQ(LinesOf(path).back()["prompt_tokens"], 3);
}

TEST(AuditLogTest, AFileThatIsLongEnoughIsPutAside) {
  const std::string path = PathOf("rotate");
  int64_t now = kNow;
  auto log = AuditLog::Open({.path = path, .bytes_max = 1000, .unix_us = [&now] { return now; }});
  ASSERT_TRUE(log.ok());
  for (int i = 0; i < 20; ++i) {
    now = kNow + i * 1'000'000;
    (*log)->Record(Record(i));
    (*log)->Flush();
  }
  log->reset();
  std::map<int, int> seen;
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(path.substr(0, path.rfind('/')))) {
    ++files;
    EXPECT_LE(std::filesystem::file_size(file.path()), 1000u + 300u);
    for (const Json& line : LinesOf(file.path().string())) ++seen[line["prompt_tokens"].get<int>()];
  }
  EXPECT_GE(files, 3);
  EXPECT_EQ(seen.size(), 20u);
}

TEST(AuditLogTest, AFileThatCannotBeOpenedIsSaid) {
  EXPECT_NE(AuditLog::Open({.path = "/no/such/folder/audit"})
                .status()
                .message()
                .find("/no/such/folder/audit"),
            absl::string_view::npos);
  EXPECT_FALSE(AuditLog::Open({.path = "/dev/null"}).ok());
}

// The limit of a file's size is in the place of a full disk: writes come back short, then fail.
TEST(AuditLogTest, AFullDiskIsToldAndWhatWaitedIsWrittenOnceThereIsRoom) {
  const std::string path = PathOf("full");
  std::signal(SIGXFSZ, SIG_IGN);
  auto log = AuditLog::Open({.path = path, .held_bytes_max = 4000, .retry_us = 1000});
  ASSERT_TRUE(log.ok());
  (*log)->Record(Record(0));
  (*log)->Flush();
  rlimit before{}, full{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  full = before;
  full.rlim_cur = std::filesystem::file_size(path) + 100;  // less than a line
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int i = 1; i <= 100; ++i) (*log)->Record(Record(i));
  while (!(*log)->counts().failing) std::this_thread::yield();
  EXPECT_EQ((*log)->counts().written, 1u);
  EXPECT_GT((*log)->counts().lost, 0u) << "more than may wait";
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  (*log)->Flush();
  const AuditLog::Counts counts = (*log)->counts();
  EXPECT_FALSE(counts.failing);
  EXPECT_EQ(counts.written + counts.lost, 101u);
  const std::vector<Json> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), counts.written);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["prompt_tokens"], i);
}

}  // namespace
}  // namespace skein::services
