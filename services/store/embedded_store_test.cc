#include "services/store/embedded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "services/store/sqlite.h"
#include "services/store/store_conformance.h"

namespace skein::services {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTimeoutUs = 20'000'000;
const HostIdentity kHost = {"boot-1", "machine-1"};

std::atomic<int64_t> boot_time_us = 1'000'000;

std::string Folder(const std::string& name) { return ::testing::TempDir() + "/store/" + name; }

absl::StatusOr<std::unique_ptr<EmbeddedStore>> OpenAs(const std::string& folder,
                                                      const HostIdentity& host) {
  return EmbeddedStore::Open({.folder = folder,
                              .look_every_us = 2'000,
                              .boot_time_us = [] { return boot_time_us.load(); },
                              .host = host});
}

std::unique_ptr<ClusterStore> OpenOne() {
  static const bool fresh = std::filesystem::remove_all(Folder("conformance")) != 0;
  (void)fresh;
  auto store = OpenAs(Folder("conformance"), kHost);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

INSTANTIATE_TEST_SUITE_P(Embedded, StoreConformance,
                         ::testing::Values(StoreUnderTest{
                             "embedded", OpenOne, "",
                             [](int64_t time_us) { boot_time_us += time_us; }}),
                         [](const auto& info) { return info.param.name; });

class EmbeddedStoreTest : public ::testing::Test {
 protected:
  EmbeddedStoreTest() { std::filesystem::remove_all(folder_); }

  std::unique_ptr<EmbeddedStore> Open(const HostIdentity& host = kHost) {
    auto store = OpenAs(folder_, host);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  const std::string folder_ =
      Folder(::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string path_ = folder_ + "/store.sqlite";
};

TEST_F(EmbeddedStoreTest, KeepsEntriesAndRevisionsAfterItsProcess) {
  int64_t revision = 0;
  {
    const auto store = Open();
    revision = PutIf(store.get(), "a", 0, "x", 0, kTimeoutUs).value();
  }
  const auto store = Open();
  EXPECT_EQ(store->Get("a", kTimeoutUs).value(), (StoreEntry{"a", "x", revision, 0}));
  EXPECT_GT(PutIf(store.get(), "b", 0, "y", 0, kTimeoutUs).value(), revision);
}

TEST_F(EmbeddedStoreTest, AReplacedEntryIsTheSameForAnotherProcessThatReadBefore) {
  const auto one = Open();
  const auto two = Open();
  const int64_t first = PutIf(one.get(), "a", 0, "x", 0, kTimeoutUs).value();
  EXPECT_EQ(two->Get("a", kTimeoutUs)->revision, first);
  ASSERT_TRUE(PutIf(one.get(), "a", first, "y", 0, kTimeoutUs).ok());
  const auto late = PutIf(two.get(), "a", first, "z", 0, kTimeoutUs);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr(path_));
}

TEST_F(EmbeddedStoreTest, ARestartOfTheMachineEndsAllLeases) {
  int64_t revision = 0;
  uint64_t lease = 0;
  {
    const auto store = Open();
    lease = store->GrantLease(int64_t{1} << 50, kTimeoutUs)->id;
    revision = store->Commit({.puts = {{"a", "x", lease}, {"b", "stays", 0}}}, kTimeoutUs).value();
  }
  const auto store = Open({"boot-2", kHost.machine});
  const auto all = store->List("", kTimeoutUs);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->entries, (std::vector<StoreEntry>{{"b", "stays", revision, 0}}));
  EXPECT_GT(all->revision, revision);
  EXPECT_NE(store->GrantLease(1'000'000, kTimeoutUs)->id, lease);
}

// SQLite would make one every 1,000 pages, in the middle of a renewal, and wait for the disk.
TEST_F(EmbeddedStoreTest, ARenewalMakesNoCheckpoint) {
  const auto store = Open();
  const auto lease = store->GrantLease(60'000'000, kTimeoutUs);
  ASSERT_TRUE(lease.ok()) << lease.status();
  for (int i = 0; i < 2200; ++i) {
    boot_time_us += 1;  // SQLite writes no row that stays as it is
    ASSERT_TRUE(store->RenewLease(lease->id, kTimeoutUs).ok());
  }
  EXPECT_GT(std::filesystem::file_size(path_ + "-wal"), 2'000u * 4096);
}

// Two processes that go on with a file that is gone, and one that begins with a new one, would be
// two stores.
TEST_F(EmbeddedStoreTest, AFileThatIsRemovedOrReplacedIsLeftByAll) {
  const auto one = Open();
  const auto two = Open();
  ASSERT_TRUE(PutIf(one.get(), "a", 0, "x", 0, kTimeoutUs).ok());
  const uint64_t lease = one->GrantLease(60'000'000, kTimeoutUs)->id;
  WatchedPrefix watched(two.get(), "");
  ASSERT_TRUE(watched.Await({"a"}));

  std::filesystem::remove_all(folder_);
  const auto late = Open();
  const uint64_t next = late->GrantLease(60'000'000, kTimeoutUs)->id;
  EXPECT_NE(next, lease);
  ASSERT_TRUE(PutIf(late.get(), "b", 0, "y", 0, kTimeoutUs).ok());
  EXPECT_TRUE(watched.Await({"b"}));
  EXPECT_EQ(one->RenewLease(lease, kTimeoutUs).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(two->Get("b", kTimeoutUs)->value, "y");

  // Nobody else creates it again, and then it is put back.
  std::filesystem::rename(folder_, folder_ + ".away");
  EXPECT_EQ(one->Get("b", kTimeoutUs).status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove_all(folder_);
  std::filesystem::rename(folder_ + ".away", folder_);
  EXPECT_EQ(one->Get("b", kTimeoutUs)->value, "y");
  EXPECT_TRUE(late->RenewLease(next, kTimeoutUs).ok());
}

TEST_F(EmbeddedStoreTest, RefusesAnotherHost) {
  const auto store = Open();
  const auto other = OpenAs(folder_, {"boot-2", "machine-2"});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("one host only"));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr(path_));
  EXPECT_TRUE(PutIf(store.get(), "a", 0, "x", 0, kTimeoutUs).ok());
}

// As after a copy of the disk while the process runs.
TEST_F(EmbeddedStoreTest, StopsUsingAFileThatAnotherBootHasTaken) {
  const auto store = Open();
  const auto other = Open({"boot-2", kHost.machine});
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(store->List("", kTimeoutUs).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PutIf(store.get(), "a", 0, "x", 0, kTimeoutUs).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(PutIf(other.get(), "a", 0, "x", 0, kTimeoutUs).ok());
}

TEST_F(EmbeddedStoreTest, SaysThatTheFileIsDamaged) {
  std::filesystem::create_directories(folder_);
  std::ofstream(path_) << std::string(8192, 'x');
  const auto store = OpenAs(folder_, kHost);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path_ + " is damaged"));
}

TEST_F(EmbeddedStoreTest, SaysThatTheFileCannotBeOpened) {
  std::filesystem::create_directories(path_);
  const auto store = OpenAs(folder_, kHost);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path_));
  const auto below = OpenAs("/proc/self/store", kHost);
  EXPECT_EQ(below.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(below.status().message()), HasSubstr("/proc/self/store"));
}

TEST_F(EmbeddedStoreTest, SaysThatItIsLockedAndReadsAllTheSame) {
  const auto store = Open();
  ASSERT_TRUE(PutIf(store.get(), "a", 0, "x", 0, kTimeoutUs).ok());
  {
    auto other = SqliteFile::Open(path_);
    ASSERT_TRUE(other.ok()) << other.status();
    ASSERT_TRUE(other->Run("BEGIN IMMEDIATE; DELETE FROM entries").ok());
    const auto put = PutIf(store.get(), "b", 0, "x", 0, /*timeout_us=*/20'000);
    EXPECT_EQ(put.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(put.status().message()), HasSubstr(path_ + " is locked"));
    EXPECT_TRUE(store->Get("a", kTimeoutUs).ok());
  }  // ends as a process that dies
  EXPECT_TRUE(PutIf(store.get(), "b", 0, "x", 0, kTimeoutUs).ok());
  EXPECT_TRUE(store->Get("a", kTimeoutUs).ok());
}

TEST_F(EmbeddedStoreTest, AWatchTellsOfAnErrorAndOfItsEnd) {
  const auto store = Open();
  ASSERT_TRUE(PutIf(store.get(), "a", 0, "x", 0, kTimeoutUs).ok());
  WatchedPrefix watched(store.get(), "");
  ASSERT_TRUE(watched.Await({"a"}));
  auto other = SqliteFile::Open(path_);
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(other->Run("UPDATE about SET boot = 'another'").ok());
  EXPECT_TRUE(watched.AwaitError());
  ASSERT_TRUE(other->Run("UPDATE about SET boot = CAST('boot-1' AS BLOB)").ok());
  EXPECT_TRUE(watched.Await({"a"}));
}

TEST(SqliteFileTest, SaysThatTheDiskIsFull) {
  const std::string path = ::testing::TempDir() + "/full.sqlite";
  std::filesystem::remove(path);
  auto file = SqliteFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Run("CREATE TABLE t (x BLOB); PRAGMA max_page_count = 3").ok());
  absl::Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    status = SqliteStatement(&*file, "INSERT INTO t VALUES (?)").Bind(std::string(4096, 'x')).Run();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path + " cannot grow: its disk is full"));
}

TEST(HostIdentityTest, KnowsThisHostAndALocalFolder) {
  const auto host = ThisHost();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_FALSE(host->boot.empty());
  EXPECT_EQ(CheckLocalFolder("/nowhere/at/all").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace skein::services
