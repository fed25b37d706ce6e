#include "services/store/election.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/store/embedded_store.h"
#include "services/store/etcd_store.h"
#include "services/store/leader_entry.h"
#include "services/store/testing/etcd_server.h"

namespace skein::services {
namespace {

constexpr int64_t kTimeoutUs = 20'000'000;
// Of those that must not lose their leadership, however slow the machine is.
constexpr int64_t kLongLeaseUs = 60'000'000;
constexpr int64_t kShortLeaseUs = 1'000'000;

// Another store, whose calls (not its watches) fail while it is cut off.
class CutStore final : public ClusterStore {
 public:
  explicit CutStore(std::unique_ptr<ClusterStore> store) : store_(std::move(store)) {}

  void Cut(bool cut) { cut_ = cut; }

  absl::StatusOr<StoreEntry> Get(const std::string& key, int64_t timeout_us) override {
    return cut_ ? Failure() : store_->Get(key, timeout_us);
  }
  absl::StatusOr<StoreSnapshot> List(const std::string& prefix, int64_t timeout_us) override {
    return cut_ ? Failure() : store_->List(prefix, timeout_us);
  }
  absl::StatusOr<int64_t> Commit(const StoreCommit& commit, int64_t timeout_us) override {
    return cut_ ? Failure() : store_->Commit(commit, timeout_us);
  }
  std::unique_ptr<StoreWatch> Watch(const std::string& prefix, Changed changed) override {
    return store_->Watch(prefix, std::move(changed));
  }
  absl::StatusOr<StoreLease> GrantLease(int64_t ttl_us, int64_t timeout_us) override {
    return cut_ ? Failure() : store_->GrantLease(ttl_us, timeout_us);
  }
  absl::StatusOr<int64_t> RenewLease(uint64_t lease, int64_t timeout_us) override {
    return cut_ ? Failure() : store_->RenewLease(lease, timeout_us);
  }
  absl::Status RevokeLease(uint64_t lease, int64_t timeout_us) override {
    return cut_ ? Failure() : store_->RevokeLease(lease, timeout_us);
  }

 private:
  static absl::Status Failure() { return absl::UnavailableError("the test has cut it off"); }

  const std::unique_ptr<ClusterStore> store_;
  std::atomic<bool> cut_ = false;
};

// A process that campaigns, and what it was told.
class Candidate {
 public:
  Candidate(std::unique_ptr<ClusterStore> store, uint64_t incarnation, int64_t lease_us)
      : store_(std::move(store)), incarnation_(incarnation) {
    election_ = std::make_unique<Election>(
        &store_,
        Election::Options{.endpoint = Endpoint(), .incarnation = incarnation, .lease_us = lease_us},
        Election::Hooks{
            .led = [this](uint64_t generation) { Note([&] { led_.push_back(generation); }); },
            .lost = [this](const absl::Status& why) { Note([&] { lost_.push_back(why.code()); }); },
            .leader_is =
                [this](const std::optional<CellLeader>& leader) {
                  Note([&] { leader_ = leader; });
                },
            .store = [this](const absl::Status& status) { Note([&] { store_status_ = status; }); },
        });
  }

  std::string Endpoint() const { return absl::StrCat("127.0.0.1:", incarnation_); }
  Election& OfElection() { return *election_; }
  CutStore& OfStore() { return store_; }
  void Die() { election_.reset(); }

  // False: not within a minute.
  bool AwaitLed(size_t times) {
    return Await([&] { return led_.size() >= times; });
  }
  bool AwaitLost(size_t times) {
    return Await([&] { return lost_.size() >= times; });
  }
  bool AwaitAllLost() {
    return Await([&] { return lost_.size() == led_.size(); });
  }
  bool AwaitLeader(const std::string& endpoint) {
    return Await([&] { return leader_ && leader_->endpoint == endpoint; });
  }
  bool AwaitStore(absl::StatusCode code) {
    return Await([&] { return store_status_.code() == code; });
  }
  // Told so far.
  std::vector<uint64_t> Led() {
    std::lock_guard lock(mu_);
    return led_;
  }
  std::vector<absl::StatusCode> Lost() {
    std::lock_guard lock(mu_);
    return lost_;
  }

 private:
  void Note(const std::function<void()>& what) {
    std::lock_guard lock(mu_);
    what();
    changed_.notify_all();
  }
  bool Await(const std::function<bool()>& holds) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::minutes(1), holds);
  }

  CutStore store_;
  const uint64_t incarnation_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<uint64_t> led_;
  std::vector<absl::StatusCode> lost_;
  std::optional<CellLeader> leader_;
  absl::Status store_status_;
  std::unique_ptr<Election> election_;  // last: its hooks use the others
};

enum class Kind { kEmbedded, kEtcd };

class ElectionTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/election/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    if (GetParam() == Kind::kEmbedded) return;
    if (const std::string why = EtcdServer::WhyNot(); !why.empty()) GTEST_SKIP() << why;
    auto server = EtcdServer::Start(folder_);
    ASSERT_TRUE(server.ok()) << server.status();
    etcd_ = *std::move(server);
  }

  std::unique_ptr<ClusterStore> OpenStore() {
    if (etcd_ != nullptr) {
      return std::make_unique<EtcdStore>(std::vector<std::string>{etcd_->endpoint()});
    }
    auto store = EmbeddedStore::Open({.folder = folder_});
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::unique_ptr<Candidate> NewCandidate(uint64_t incarnation, int64_t lease_us = kLongLeaseUs) {
    return std::make_unique<Candidate>(OpenStore(), incarnation, lease_us);
  }

  std::string folder_;
  std::unique_ptr<EtcdServer> etcd_;
};

INSTANTIATE_TEST_SUITE_P(Stores, ElectionTest, ::testing::Values(Kind::kEmbedded, Kind::kEtcd),
                         [](const auto& info) {
                           return info.param == Kind::kEmbedded ? "Embedded" : "Etcd";
                         });

TEST_P(ElectionTest, AnotherLeadsWhenTheLeaderDies) {
  const auto first = NewCandidate(1, kShortLeaseUs);
  ASSERT_TRUE(first->AwaitLed(1));
  const auto second = NewCandidate(2);
  const uint64_t generation = first->Led().back();
  first->Die();
  ASSERT_TRUE(second->AwaitLed(1));
  EXPECT_GT(second->Led()[0], generation);
  const auto third = NewCandidate(3);
  EXPECT_TRUE(third->AwaitLeader(second->Endpoint()));
}

TEST_P(ElectionTest, ALeaderThatResignsHasEndedBeforeTheNextBegins) {
  auto now = NewCandidate(1);
  ASSERT_TRUE(now->AwaitLed(1));
  for (uint64_t incarnation = 2; incarnation < 5; ++incarnation) {
    auto next = NewCandidate(incarnation);
    ASSERT_TRUE(next->AwaitLeader(now->Endpoint()));
    EXPECT_TRUE(next->Led().empty());
    ASSERT_TRUE(now->OfElection().Resign(kTimeoutUs).ok());
    EXPECT_FALSE(now->OfElection().Leads());
    EXPECT_EQ(now->Lost().back(), absl::StatusCode::kOk);
    ASSERT_TRUE(next->AwaitLed(1));
    EXPECT_GT(next->Led()[0], now->Led().back());
    now = std::move(next);
  }
}

TEST_P(ElectionTest, OneThatOnlyFollowsResignsAtOnce) {
  const auto first = NewCandidate(1);
  ASSERT_TRUE(first->AwaitLed(1));
  const auto second = NewCandidate(2);
  ASSERT_TRUE(second->AwaitLeader(first->Endpoint()));
  EXPECT_TRUE(second->OfElection().Resign(kTimeoutUs).ok());
  EXPECT_TRUE(second->Lost().empty());
  EXPECT_FALSE(second->OfElection().Leads());
}

TEST_P(ElectionTest, ALeaderThatCannotRenewLosesAndLeadsAnewWhenItCan) {
  const auto only = NewCandidate(1, kShortLeaseUs);
  ASSERT_TRUE(only->AwaitLed(1));
  only->OfStore().Cut(true);
  ASSERT_TRUE(only->AwaitStore(absl::StatusCode::kUnavailable));
  ASSERT_TRUE(only->AwaitAllLost());
  EXPECT_FALSE(only->OfElection().Leads());
  EXPECT_EQ(only->Lost().back(), absl::StatusCode::kUnavailable);
  const size_t before = only->Led().size();
  only->OfStore().Cut(false);
  ASSERT_TRUE(only->AwaitLed(before + 1));
  EXPECT_GT(only->Led()[before], only->Led()[before - 1]);
  EXPECT_TRUE(only->AwaitStore(absl::StatusCode::kOk));
}

TEST_P(ElectionTest, ALeaderWhoseEntryIsTakenAwayLoses) {
  const auto first = NewCandidate(1);
  ASSERT_TRUE(first->AwaitLed(1));
  const auto operator_store = OpenStore();
  const std::string key = LeaderKey("default");
  const auto entry = operator_store->Get(key, kTimeoutUs);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(ReadLeader(entry->value), (CellLeader{first->Endpoint(), 1, first->Led().back()}));
  ASSERT_TRUE(DeleteIf(operator_store.get(), key, entry->revision, kTimeoutUs).ok());
  ASSERT_TRUE(first->AwaitLost(1));
  EXPECT_EQ(first->Lost()[0], absl::StatusCode::kAborted);
  EXPECT_TRUE(first->AwaitLed(2));
}

TEST_P(ElectionTest, ARaisedGenerationIsBelowThatOfTheNextLeader) {
  const auto first = NewCandidate(1);
  ASSERT_TRUE(first->AwaitLed(1));
  const auto other_store = OpenStore();
  std::mutex mu;
  std::condition_variable changed;
  std::string stored;
  const auto watch = other_store->Watch(GenerationKey("default"), [&](const auto& snapshot) {
    std::lock_guard lock(mu);
    if (snapshot.ok() && !snapshot->entries.empty()) stored = snapshot->entries[0].value;
    changed.notify_all();
  });
  first->OfElection().Raise(1000);
  {
    std::unique_lock lock(mu);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return stored == "1000"; }));
  }
  ASSERT_TRUE(first->OfElection().Resign(kTimeoutUs).ok());
  const auto second = NewCandidate(2);
  ASSERT_TRUE(second->AwaitLed(1));
  EXPECT_EQ(second->Led()[0], 1001u);
}

TEST_P(ElectionTest, NobodyLeadsWithAGenerationThatIsNoNumber) {
  const auto operator_store = OpenStore();
  const auto put = PutIf(operator_store.get(), GenerationKey("default"), 0, "seven", 0, kTimeoutUs);
  ASSERT_TRUE(put.ok()) << put.status();
  const auto first = NewCandidate(1);
  ASSERT_TRUE(first->AwaitStore(absl::StatusCode::kUnavailable));
  ASSERT_TRUE(PutIf(operator_store.get(), GenerationKey("default"), *put, "7", 0, kTimeoutUs).ok());
  ASSERT_TRUE(first->AwaitLed(1));
  EXPECT_EQ(first->Led()[0], 8u);
}

TEST(ElectionOptions, AreChecked) {
  const Election::Options good = {.cell = "eu-1", .endpoint = "host:7100", .incarnation = 1};
  EXPECT_TRUE(Election::Check(good).ok());
  const auto refused = [&](const std::function<void(Election::Options*)>& change) {
    Election::Options options = good;
    change(&options);
    return absl::IsInvalidArgument(Election::Check(options));
  };
  EXPECT_TRUE(refused([](auto* o) { o->cell = ""; }));
  EXPECT_TRUE(refused([](auto* o) { o->cell = "a/b"; }));
  EXPECT_TRUE(refused([](auto* o) { o->endpoint = "host 7100"; }));
  EXPECT_TRUE(refused([](auto* o) { o->incarnation = 0; }));
  EXPECT_TRUE(refused([](auto* o) { o->lease_us = 1; }));
}

TEST(LeaderEntry, IsReadAsItIsWritten) {
  const CellLeader leader = {"[::1]:7100", ~uint64_t{0}, 12};
  EXPECT_EQ(ReadLeader(WriteLeader(leader)), leader);
  EXPECT_EQ(ReadLeader(WriteLeader(leader) + " zone=of-a-later-version"), leader);
  EXPECT_EQ(ReadLeader(""), std::nullopt);
  EXPECT_EQ(ReadLeader("endpoint=a:1 incarnation=x generation=1"), std::nullopt);
  EXPECT_EQ(ReadLeader("endpoint=a:1 incarnation=1"), std::nullopt);
}

}  // namespace
}  // namespace skein::services
