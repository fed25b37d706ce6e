#include "scheduler/orchestrator/registry/routers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace skein::scheduler {
namespace {

constexpr TimeUs kLeaseUs = 3 * kSecondUs;

class RoutersTest : public ::testing::Test {
 protected:
  Routers::Connected Connect(uint64_t router, uint64_t stream, TimeUs at = 0,
                             const std::string& endpoint = "0.0.0.0:8000",
                             const std::string& host = "a") {
    const RouterHello hello{.identity = {.router = router, .endpoint = endpoint, .host = host}};
    return routers_.Connect(hello, {stream}, at, at);
  }
  void Break(uint64_t stream, TimeUs at = 0) {
    routers_.Disconnect(*routers_.FindConnected({stream}), at);
  }
  void TearDown() override {
    EXPECT_TRUE(routers_.CheckInvariants().ok()) << routers_.CheckInvariants();
  }

  Routers routers_{kLeaseUs};
};

TEST_F(RoutersTest, OneThatDoesNotComeBackIsAbsent) {
  using Ids = std::vector<uint64_t>;
  for (const uint64_t router : {7, 8, 9}) Connect(router, router, 0, "r", std::to_string(router));
  Break(7, 100);
  Break(8, 100);
  Connect(8, 10, 200, "r", "8");
  EXPECT_EQ(routers_.NextDue(), 100 + kLeaseUs / 2);
  EXPECT_EQ(routers_.TakeAbsent(99 + kLeaseUs / 2), Ids{});
  EXPECT_EQ(routers_.TakeAbsent(100 + kLeaseUs / 2), Ids{7});
  EXPECT_EQ(routers_.TakeAbsent(kLeaseUs), Ids{}) << "once";
  EXPECT_TRUE(routers_.Find(7)->absent);
  EXPECT_FALSE(routers_.Find(8)->absent);
  Connect(7, 11, kLeaseUs, "r", "7");
  EXPECT_FALSE(routers_.Find(7)->absent);
  EXPECT_EQ(routers_.TakeAbsent(10 * kLeaseUs), Ids{});
}

TEST_F(RoutersTest, IsFoundByItsStreamUntilThatBreaksOrAnotherTakesItsPlace) {
  EXPECT_TRUE(Connect(7, 1).is_new);
  EXPECT_EQ(routers_.FindConnected({1})->identity.router, 7u);
  const Routers::Connected again = Connect(7, 2);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.former, CallId{1});
  EXPECT_EQ(routers_.FindConnected({1}), nullptr);
  EXPECT_EQ(routers_.FindConnected({2})->identity.router, 7u);
  Break(2);
  EXPECT_EQ(routers_.FindConnected({2}), nullptr);
  EXPECT_EQ(routers_.FindConnected({}), nullptr) << "the stream of no router";
  EXPECT_EQ(routers_.Find(7)->connection, CallId{});
  EXPECT_EQ(Connect(7, 3).former, CallId{});
  routers_.Remove(7);
  EXPECT_EQ(routers_.FindConnected({3}), nullptr);
}

// What a router said holds until it says otherwise, in full with each hello, or is gone.
TEST_F(RoutersTest, KnowsWhoHearsWhom) {
  const Incarnation a{1}, b{2};
  Connect(7, 1);
  Connect(8, 2, 0, "0.0.0.0:8001");
  const auto report = [this](uint64_t stream, std::vector<Incarnation> heard,
                             std::vector<Incarnation> not_heard) {
    RouterLoad load;
    load.heard = std::move(heard);
    load.not_heard = std::move(not_heard);
    routers_.Report(*routers_.FindConnected({stream}), load, 0, 0);
    ASSERT_TRUE(routers_.CheckInvariants().ok()) << routers_.CheckInvariants();
  };
  const auto by = [this](Incarnation id) { return routers_.evidence().HeardBy(id); };
  report(1, {a, b}, {});
  report(2, {a}, {b});
  EXPECT_EQ(by(a), 2);
  EXPECT_EQ(by(b), 1);
  report(1, {}, {});
  EXPECT_EQ(by(a), 2) << "a report tells changes only";
  report(1, {}, {a});
  EXPECT_EQ(by(a), 1);
  Break(1);
  EXPECT_EQ(by(b), 1) << "its stream may come back";
  Connect(7, 3);
  EXPECT_EQ(by(b), 0) << "the hello says all";
  report(3, {b}, {});
  routers_.Remove(7);
  EXPECT_EQ(by(b), 0);
}

TEST_F(RoutersTest, AllStreamsMayBreakAtOnce) {
  Connect(7, 1);
  Connect(8, 2, 0, "0.0.0.0:8001");
  Connect(9, 3, 0, "0.0.0.0:8002");
  Break(2);
  EXPECT_EQ(routers_.DisconnectAll(0), (std::vector<CallId>{{1}, {3}}));
  EXPECT_EQ(routers_.FindConnected({1}), nullptr);
  EXPECT_TRUE(routers_.DisconnectAll(0).empty());
}

TEST_F(RoutersTest, AnotherProcessReplacesOneAtItsPlaceWhoseStreamIsBroken) {
  Connect(7, 1);
  EXPECT_TRUE(Connect(8, 2).replaced.empty()) << "the stream of 7 stands: it is alive";
  Break(1);
  Break(2);
  EXPECT_TRUE(Connect(9, 3, 0, "0.0.0.0:8000", "b").replaced.empty()) << "another host";
  EXPECT_TRUE(Connect(10, 4, 0, "0.0.0.0:8001").replaced.empty()) << "another endpoint";
  EXPECT_EQ(Connect(11, 5).replaced, (std::vector<uint64_t>{7, 8}));
}

TEST_F(RoutersTest, IsSilentWhenItsLeaseEnds) {
  EXPECT_EQ(routers_.NextDue(), kNever);
  Connect(7, 1);
  Connect(8, 2, kSecondUs, "0.0.0.0:8001");
  EXPECT_EQ(routers_.NextDue(), kLeaseUs);
  routers_.Report(*routers_.FindConnected({1}), {}, 2 * kSecondUs, 2 * kSecondUs);
  EXPECT_EQ(routers_.NextDue(), kSecondUs + kLeaseUs);
  EXPECT_TRUE(routers_.TakeSilent(kSecondUs + kLeaseUs - 1).empty());
  EXPECT_EQ(routers_.TakeSilent(kSecondUs + kLeaseUs), std::vector<uint64_t>{8});
  routers_.Remove(8);
  EXPECT_EQ(routers_.NextDue(), 2 * kSecondUs + kLeaseUs);
  EXPECT_EQ(routers_.Find(7)->heard_us, 2 * kSecondUs);
  routers_.Remove(7);
  EXPECT_EQ(routers_.NextDue(), kNever);
}

TEST_F(RoutersTest, TheLastOneThatServesIsDrainedByForceOnly) {
  Connect(7, 1);
  Connect(8, 2, 0, "0.0.0.0:8001");
  EXPECT_TRUE(absl::IsNotFound(routers_.Drain({.router = 9})));
  EXPECT_TRUE(routers_.Drain({.router = 7}).ok());
  EXPECT_TRUE(routers_.Find(7)->draining());
  EXPECT_TRUE(absl::IsFailedPrecondition(routers_.Drain({.router = 8})));
  EXPECT_FALSE(routers_.Find(8)->draining());
  EXPECT_TRUE(routers_.Drain({.router = 7}).ok()) << "it drains already";
  EXPECT_TRUE(routers_.Drain({.router = 8, .force = true}).ok());
  EXPECT_TRUE(routers_.Drain({.router = 7, .undo = true}).ok());
  EXPECT_FALSE(routers_.Find(7)->draining());
}

TEST_F(RoutersTest, RemembersItsLatestFailures) {
  Connect(7, 1);
  const Failed lost{absl::UnavailableError("lost"), {{5}}, true};
  routers_.NoteFailure({9, 1}, lost);  // of a router that is not known
  EXPECT_EQ(routers_.FailureOf({9, 1}), nullptr);
  for (uint64_t serial = 1; serial <= Routers::kMaxFailures + 1; ++serial) {
    routers_.NoteFailure({7, serial}, lost);
  }
  EXPECT_EQ(routers_.FailureOf({7, 1}), nullptr);
  ASSERT_NE(routers_.FailureOf({7, 2}), nullptr);
  EXPECT_EQ(routers_.FailureOf({7, 2})->status, lost.status);
  EXPECT_EQ(routers_.FailureOf({7, 2})->failed_engines, lost.failed_engines);
  EXPECT_TRUE(routers_.FailureOf({7, 2})->condemned);
  EXPECT_EQ(routers_.Find(7)->failures.size(), Routers::kMaxFailures);
  routers_.ForgetFailure({7, 2});
  EXPECT_EQ(routers_.FailureOf({7, 2}), nullptr);
}

}  // namespace
}  // namespace skein::scheduler
