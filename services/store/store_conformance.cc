#include "services/store/store_conformance.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

constexpr int64_t kTtlUs = 2'000'000;

std::vector<std::string> KeysOf(const StoreSnapshot& snapshot) {
  std::vector<std::string> keys;
  keys.reserve(snapshot.entries.size());
  for (const StoreEntry& entry : snapshot.entries) keys.push_back(entry.key);
  return keys;
}

}  // namespace

WatchedPrefix::WatchedPrefix(ClusterStore* store, const std::string& prefix) {
  watch_ = store->Watch(prefix, [this](const absl::StatusOr<StoreSnapshot>& snapshot) {
    std::lock_guard lock(mu_);
    latest_ = snapshot;
    if (snapshot.ok()) {
      revisions_grow_ = revisions_grow_ && snapshot->revision >= revision_;
      revision_ = snapshot->revision;
    }
    changed_.notify_all();
  });
}

bool WatchedPrefix::AwaitThat(const std::function<bool()>& holds) {
  std::unique_lock lock(mu_);
  return changed_.wait_for(lock, std::chrono::minutes(1), holds);
}

bool WatchedPrefix::Await(const std::vector<std::string>& keys) {
  return AwaitThat([&] { return latest_ && latest_->ok() && KeysOf(**latest_) == keys; });
}

bool WatchedPrefix::AwaitError() {
  return AwaitThat([&] { return latest_ && !latest_->ok(); });
}

bool WatchedPrefix::RevisionsGrow() {
  std::lock_guard lock(mu_);
  return revisions_grow_;
}

StoreSnapshot WatchedPrefix::latest() {
  std::lock_guard lock(mu_);
  return latest_ && latest_->ok() ? **latest_ : StoreSnapshot{};
}

void StoreConformance::SetUp() {
  if (!GetParam().open) GTEST_SKIP() << GetParam().why;
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  prefix_ = "conformance/" + test.substr(0, test.find('/')) + "/";
  store_ = GetParam().open();
  ASSERT_NE(store_, nullptr);
}

TEST_P(StoreConformance, PutsByCompareAndSwap) {
  EXPECT_EQ(store_->Get(Key("a"), kTimeoutUs).status().code(), absl::StatusCode::kNotFound);
  const auto first = PutIf(store_.get(), Key("a"), 0, "one", 0, kTimeoutUs);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(PutIf(store_.get(), Key("a"), 0, "two", 0, kTimeoutUs).status().code(),
            absl::StatusCode::kAborted);
  const auto second = PutIf(store_.get(), Key("a"), *first, "two", 0, kTimeoutUs);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT(*second, *first);
  EXPECT_EQ(PutIf(store_.get(), Key("a"), *first, "three", 0, kTimeoutUs).status().code(),
            absl::StatusCode::kAborted);
  const auto entry = store_->Get(Key("a"), kTimeoutUs);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(*entry, (StoreEntry{Key("a"), "two", *second, 0}));

  EXPECT_EQ(DeleteIf(store_.get(), Key("a"), *first, kTimeoutUs).status().code(),
            absl::StatusCode::kAborted);
  const auto third = DeleteIf(store_.get(), Key("a"), *second, kTimeoutUs);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_GT(*third, *second);
  // A new entry has a new revision: an old one never comes back.
  const auto fourth = PutIf(store_.get(), Key("a"), 0, "two", 0, kTimeoutUs);
  ASSERT_TRUE(fourth.ok()) << fourth.status();
  EXPECT_GT(*fourth, *third);
}

TEST_P(StoreConformance, WritesAllOfACommitOrNothing) {
  const auto a = PutIf(store_.get(), Key("a"), 0, "1", 0, kTimeoutUs);
  ASSERT_TRUE(a.ok()) << a.status();
  const auto wrong = store_->Commit({.expected = {{Key("a"), *a}, {Key("b"), *a}},
                                     .puts = {{Key("a"), "2", 0}, {Key("c"), "2", 0}}},
                                    kTimeoutUs);
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(store_->Get(Key("a"), kTimeoutUs)->value, "1");
  EXPECT_EQ(store_->Get(Key("c"), kTimeoutUs).status().code(), absl::StatusCode::kNotFound);

  const auto right = store_->Commit({.expected = {{Key("a"), *a}, {Key("b"), 0}},
                                     .puts = {{Key("b"), "3", 0}, {Key("c"), "3", 0}},
                                     .deletes = {Key("a"), Key("nothing")}},
                                    kTimeoutUs);
  ASSERT_TRUE(right.ok()) << right.status();
  const auto all = store_->List(prefix_, kTimeoutUs);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->entries,
            (std::vector<StoreEntry>{{Key("b"), "3", *right, 0}, {Key("c"), "3", *right, 0}}));
  EXPECT_GE(all->revision, *right);
}

TEST_P(StoreConformance, ListsAPrefixInOrderAndKeepsEveryByte) {
  const std::string bytes("\0\xff\n'\"", 5);
  const std::string under = Key("p/");
  const auto done = store_->Commit({.puts = {{under + "\xff", "", 0},
                                             {under + "b", bytes, 0},
                                             {under + "a", "x", 0},
                                             {Key("p"), "before", 0},
                                             {Key("p0"), "behind", 0}}},
                                   kTimeoutUs);
  ASSERT_TRUE(done.ok()) << done.status();
  const auto all = store_->List(under, kTimeoutUs);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->entries, (std::vector<StoreEntry>{{under + "a", "x", *done, 0},
                                                   {under + "b", bytes, *done, 0},
                                                   {under + "\xff", "", *done, 0}}));
  EXPECT_EQ(store_->Get(Key("p"), kTimeoutUs)->value, "before");
  EXPECT_TRUE(store_->List(Key("none/"), kTimeoutUs)->entries.empty());
}

TEST_P(StoreConformance, RefusesWhatMeansNothing) {
  const auto code = [&](const StoreCommit& commit) {
    return store_->Commit(commit, kTimeoutUs).status().code();
  };
  EXPECT_EQ(code({.puts = {{"", "x", 0}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.puts = {{Key("a"), "x", 0}, {Key("a"), "y", 0}}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.puts = {{Key("a"), "x", 0}}, .deletes = {Key("a")}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.puts = {{Key("a"), "x", 77}}}), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->GrantLease(0, kTimeoutUs).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->RenewLease(77, kTimeoutUs).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->RevokeLease(77, kTimeoutUs).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->List(prefix_, kTimeoutUs)->entries.empty());
}

TEST_P(StoreConformance, ALeaseTakesItsEntriesWithIt) {
  const auto lease = store_->GrantLease(kTtlUs, kTimeoutUs);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_NE(lease->id, 0u);
  EXPECT_GE(lease->ttl_us, kTtlUs);
  const auto put =
      store_->Commit({.puts = {{Key("a"), "x", lease->id}, {Key("b"), "stays", 0}}}, kTimeoutUs);
  ASSERT_TRUE(put.ok()) << put.status();
  WatchedPrefix watched(store_.get(), prefix_);
  ASSERT_TRUE(watched.Await({Key("a"), Key("b")}));
  EXPECT_EQ(watched.latest().entries[0].lease, lease->id);
  Pass(lease->ttl_us - 1);
  if (GetParam().pass) {
    EXPECT_TRUE(store_->Get(Key("a"), kTimeoutUs).ok());
  }
  Pass(1);
  ASSERT_TRUE(watched.Await({Key("b")}));
  EXPECT_EQ(store_->Get(Key("a"), kTimeoutUs).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->RenewLease(lease->id, kTimeoutUs).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(PutIf(store_.get(), Key("a"), 0, "y", lease->id, kTimeoutUs).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(PutIf(store_.get(), Key("a"), 0, "y", 0, kTimeoutUs).ok());
  EXPECT_TRUE(watched.Await({Key("a"), Key("b")}));
  EXPECT_TRUE(watched.RevisionsGrow());
}

TEST_P(StoreConformance, ARenewalBeginsTheTimeAnew) {
  const auto lease = store_->GrantLease(kTtlUs, kTimeoutUs);
  ASSERT_TRUE(lease.ok()) << lease.status();
  ASSERT_TRUE(PutIf(store_.get(), Key("a"), 0, "x", lease->id, kTimeoutUs).ok());
  for (int i = 0; i < 5; ++i) {
    Pass(lease->ttl_us * 2 / 3);
    const auto ttl_us = store_->RenewLease(lease->id, kTimeoutUs);
    ASSERT_TRUE(ttl_us.ok()) << ttl_us.status();
    EXPECT_EQ(*ttl_us, lease->ttl_us);
  }
  EXPECT_TRUE(store_->Get(Key("a"), kTimeoutUs).ok());
  EXPECT_TRUE(store_->RevokeLease(lease->id, kTimeoutUs).ok());
}

TEST_P(StoreConformance, ARevokedLeaseEndsAtOnce) {
  const auto lease = store_->GrantLease(600'000'000, kTimeoutUs);
  ASSERT_TRUE(lease.ok()) << lease.status();
  const auto put = store_->Commit(
      {.puts = {{Key("a"), "x", lease->id}, {Key("b"), "y", lease->id}}}, kTimeoutUs);
  ASSERT_TRUE(put.ok()) << put.status();
  // An entry that is put without the lease has left it.
  ASSERT_TRUE(PutIf(store_.get(), Key("b"), *put, "z", 0, kTimeoutUs).ok());
  const auto other = GetParam().open();
  WatchedPrefix watched(other.get(), prefix_);
  ASSERT_TRUE(watched.Await({Key("a"), Key("b")}));
  ASSERT_TRUE(store_->RevokeLease(lease->id, kTimeoutUs).ok());
  EXPECT_EQ(other->Get(Key("a"), kTimeoutUs).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(watched.Await({Key("b")}));
  EXPECT_EQ(store_->RevokeLease(lease->id, kTimeoutUs).code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreConformance, AWatchTellsTheLatestOfItsPrefix) {
  const auto other = GetParam().open();
  WatchedPrefix watched(store_.get(), Key("w/"));
  ASSERT_TRUE(watched.Await({}));
  ASSERT_TRUE(PutIf(other.get(), Key("elsewhere"), 0, "x", 0, kTimeoutUs).ok());
  const auto first = PutIf(other.get(), Key("w/a"), 0, "1", 0, kTimeoutUs);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(watched.Await({Key("w/a")}));
  EXPECT_GE(watched.latest().revision, *first);
  int64_t revision = *first;
  for (int i = 2; i < 20; ++i) {
    const auto put = PutIf(other.get(), Key("w/a"), revision, absl::StrCat(i), 0, kTimeoutUs);
    ASSERT_TRUE(put.ok()) << put.status();
    revision = *put;
  }
  ASSERT_TRUE(PutIf(other.get(), Key("w/b"), 0, "", 0, kTimeoutUs).ok());
  ASSERT_TRUE(watched.Await({Key("w/a"), Key("w/b")}));
  EXPECT_EQ(watched.latest().entries[0], (StoreEntry{Key("w/a"), "19", revision, 0}));
  ASSERT_TRUE(DeleteIf(other.get(), Key("w/a"), revision, kTimeoutUs).ok());
  EXPECT_TRUE(watched.Await({Key("w/b")}));
  EXPECT_TRUE(watched.RevisionsGrow());
}

TEST_P(StoreConformance, NoUpdateIsLostAmongManyWriters) {
  constexpr int kWriters = 4;
  constexpr int kEach = 15;
  ASSERT_TRUE(PutIf(store_.get(), Key("count"), 0, "0", 0, kTimeoutUs).ok());
  std::vector<std::thread> writers;
  writers.reserve(kWriters);
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([this] {
      const auto own = GetParam().open();
      for (int added = 0; added < kEach;) {
        const auto now = own->Get(Key("count"), kTimeoutUs);
        ASSERT_TRUE(now.ok()) << now.status();
        int count = 0;
        ASSERT_TRUE(absl::SimpleAtoi(now->value, &count));
        const auto put =
            PutIf(own.get(), Key("count"), now->revision, absl::StrCat(count + 1), 0, kTimeoutUs);
        if (put.ok()) {
          ++added;
        } else {
          ASSERT_EQ(put.status().code(), absl::StatusCode::kAborted) << put.status();
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(store_->Get(Key("count"), kTimeoutUs)->value, absl::StrCat(kWriters * kEach));
}

}  // namespace skein::services
