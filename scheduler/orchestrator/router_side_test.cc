#include "scheduler/orchestrator/router_side.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace skein::scheduler::orchestrator {
namespace {

constexpr TimeUs kLeaseUs = 3 * kSecondUs;

class RouterSideTest : public ::testing::Test, public RequestEnds {
 protected:
  void CloseByRouter(Request& request) override {
    closed_.push_back(request.spec->id.serial);
    requests_.Erase(request);
  }
  void Fail(Request&, const absl::Status& why) override { FAIL() << why; }
  void Finish(Request&, FinishReason) override { FAIL(); }
  void Replan(Request&, const absl::Status& why) override { FAIL() << why; }
  static HeadPtr Spec(uint64_t router, uint64_t serial) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {router, serial};
    spec->model = "m";
    return spec;
  }
  // A decode instance of a build that speaks the protocol up to this revision.
  InstanceId AddDecode(uint64_t process, uint32_t revision) {
    WorkerIdentity identity{.role = Role::kDecode,
                            .model = "m",
                            .endpoint = "d:" + std::to_string(process),
                            .incarnation = {process},
                            .total_blocks = 10};
    identity.shape.block_tokens = identity.shape.num_layers = 1;
    identity.build.protocol.newest = revision;
    const auto registered = registry_.Register({.identity = identity}, {1000 + process}, now_);
    EXPECT_TRUE(registered.ok()) << registered.status();
    return registered->id;
  }
  void Place(Request& request, InstanceId decode) {
    request.decode = decode;
    request.epoch = {5};
    requests_.Enter(request, State::kPlaced);
  }
  Request& Add(uint64_t router, uint64_t serial) {
    Request& request = requests_.Add(Spec(router, serial), now_, now_ + 600 * kSecondUs);
    requests_.Enter(request, State::kParked);
    return request;
  }
  // Its hello is its `stream`th, on a connection of that number.
  void Connect(uint64_t router, uint64_t stream, std::vector<RequestId> listed = {}) {
    RouterHello hello;
    hello.stream = stream;
    hello.identity.router = router;
    hello.identity.endpoint = "r:" + std::to_string(router);
    for (const RequestId id : listed) hello.requests.push_back({.id = id});
    effects_.clear();
    side_.Connect({{stream}, std::move(hello)}, {5, {1}}, now_);
  }
  template <class T>
  std::vector<T> Of() const {
    std::vector<T> found;
    for (const OrchestratorEffect& effect : effects_) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }
  // The listening clock runs for so long.
  void Listen(TimeUs time) {
    for (const TimeUs end = now_ + time; now_ < end; now_ += kLeaseUs / 16) {
      registry_.Listened(now_);
      side_.LoseTheSilent(now_);
      side_.LeaveTheAbsent();
    }
  }
  void TearDown() override { EXPECT_TRUE(side_.CheckInvariants().ok()) << side_.CheckInvariants(); }

  TimeUs now_ = 0;
  RequestTable requests_;
  Registry registry_{1, kLeaseUs};
  ExplanationLog explanations_{10};
  GoneList gone_{10, 600 * kSecondUs};
  std::vector<OrchestratorEffect> effects_;
  std::vector<uint64_t> closed_;
  PlanSender sender_{&registry_, &effects_};
  RouterSide side_{kLeaseUs,
                   100,
                   {.requests = &requests_,
                    .registry = &registry_,
                    .explanations = &explanations_,
                    .gone = &gone_,
                    .ends = this,
                    .effects = &effects_,
                    .sender = &sender_,
                    .build = {"test", {0, 1}}}};
};

TEST_F(RouterSideTest, OneThatComesBackHearsHowItsRequestsStand) {
  Add(7, 1);
  Add(7, 2);
  Add(8, 3);
  Connect(7, 1, {{7, 2}, {7, 9}});
  ASSERT_EQ(Of<WelcomeRouter>().size(), 1u);
  const RouterWelcome welcome = Of<WelcomeRouter>()[0].welcome;
  EXPECT_EQ(welcome.unknown, (std::vector<RequestId>{{7, 9}}));
  EXPECT_EQ(welcome.generation.number, 5u);
  EXPECT_EQ(welcome.lease_us, kLeaseUs);
  ASSERT_EQ(Of<SendPlanUpdate>().size(), 1u);
  EXPECT_EQ(Of<SendPlanUpdate>()[0].id, (RequestId{7, 2}));
  EXPECT_EQ(closed_, std::vector<uint64_t>{1}) << "not listed: it has ended for its client";
}

// The router has given its stream up since, and has sent another request.
TEST_F(RouterSideTest, AHelloThatArrivesLateChangesNothing) {
  Connect(7, 2);
  Add(7, 1);
  Connect(7, 1);
  ASSERT_EQ(Of<WelcomeRouter>().size(), 1u);
  EXPECT_EQ(Of<WelcomeRouter>()[0].call, CallId{1});
  EXPECT_TRUE(absl::IsFailedPrecondition(Of<WelcomeRouter>()[0].welcome.status));
  EXPECT_EQ(effects_.size(), 1u) << "the stream is not closed, nothing is told";
  EXPECT_TRUE(closed_.empty());
  EXPECT_EQ(side_.routers().Find(7)->connection, CallId{2});
}

TEST_F(RouterSideTest, AHelloOfARouterThatHasLeftComesTooLate) {
  Connect(7, 2);
  side_.On(RouterLeft{{2}}, now_);
  Connect(7, 1);
  EXPECT_EQ(side_.routers().Find(7), nullptr);
}

TEST_F(RouterSideTest, AFailureIsToldOnEachStreamUntilItIsConfirmed) {
  Connect(7, 1);
  side_.TellFailed({7, 1}, {absl::UnavailableError("lost")});
  for (uint64_t stream = 2; stream <= 3; ++stream) {
    Connect(7, stream, {{7, 1}});
    EXPECT_TRUE(Of<WelcomeRouter>()[0].welcome.unknown.empty());
    ASSERT_EQ(Of<SendPlanUpdate>().size(), 1u);
    ASSERT_EQ(Of<CloseRouter>().size(), 1u);
    EXPECT_EQ(Of<CloseRouter>()[0].call, CallId{stream - 1});
  }
  side_.On(RouterEnded{{.id = {7, 1}}}, now_);
  Connect(7, 4, {{7, 1}});
  EXPECT_EQ(Of<WelcomeRouter>()[0].welcome.unknown.size(), 1u);
}

TEST_F(RouterSideTest, OfASilentOneOnlyThoseThatArePlacedGoOn) {
  Connect(7, 1);
  requests_.Enter(Add(7, 1), State::kPlaced);
  Add(7, 2);
  Listen(kLeaseUs / 2);
  EXPECT_NE(side_.routers().Find(7), nullptr);
  Listen(kLeaseUs);
  EXPECT_EQ(side_.routers().Find(7), nullptr);
  EXPECT_EQ(closed_, std::vector<uint64_t>{2});
  EXPECT_EQ(gone_.Latest(now_).size(), 1u);
}

// Whether it has attached to a placed one only the decode instance knows.
TEST_F(RouterSideTest, OneThatDoesNotComeBackLosesWhatItHasNotAttachedTo) {
  const InstanceId decode = AddDecode(1, 1), old = AddDecode(2, 0);
  Connect(7, 1);
  Connect(8, 2);
  Place(Add(7, 1), decode);
  Place(Add(7, 2), old);
  Add(7, 3);
  Add(8, 4);
  Listen(kLeaseUs / 4);
  effects_.clear();
  side_.On(RouterDisconnected{{1}}, now_);
  Listen(kLeaseUs / 4);
  EXPECT_TRUE(Of<CallCancel>().empty() && closed_.empty()) << "it may come back";
  side_.Heard(8, now_);
  Listen(kLeaseUs / 4 + kLeaseUs / 16);
  EXPECT_EQ(closed_, std::vector<uint64_t>{3});
  ASSERT_EQ(Of<CallCancel>().size(), 1u) << "an older one would cancel it in any case";
  EXPECT_EQ(Of<CallCancel>()[0].instance, decode);
  EXPECT_EQ(Of<CallCancel>()[0].request.id, (RequestId{7, 1}));
  EXPECT_EQ(Of<CallCancel>()[0].request.epoch, Epoch{5});
  EXPECT_TRUE(Of<CallCancel>()[0].request.unless_claimed);
  EXPECT_NE(side_.routers().Find(7), nullptr) << "it has its lease";
  Connect(7, 3, {{7, 1}, {7, 2}, {7, 3}});
  EXPECT_EQ(Of<WelcomeRouter>()[0].welcome.unknown, (std::vector<RequestId>{{7, 3}}))
      << "which it submits again";
}

TEST_F(RouterSideTest, OneThatComesBackInTimeLosesNothing) {
  Connect(7, 1);
  Add(7, 1);
  side_.On(RouterDisconnected{{1}}, now_);
  Listen(kLeaseUs / 4);
  Connect(7, 2, {{7, 1}});
  Listen(kLeaseUs / 2);
  EXPECT_TRUE(closed_.empty());
}

TEST_F(RouterSideTest, OneThatLeavesTakesAllOfItsRequestsAlong) {
  Connect(7, 1);
  requests_.Enter(Add(7, 1), State::kPlaced);
  Add(7, 2);
  side_.On(RouterLeft{{1}}, now_);
  EXPECT_EQ(closed_, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(Of<AnswerRouterGoodbye>().size(), 1u);
  EXPECT_TRUE(Of<CloseRouter>().empty()) << "it closes its stream itself";
}

TEST_F(RouterSideTest, WhatIsSubmittedEarlyWaitsUnlessItEnds) {
  Connect(7, 1);
  side_.HoldUntil(kSecondUs);
  ASSERT_TRUE(side_.Holds(now_));
  for (uint64_t serial = 1; serial <= 3; ++serial) side_.Hold({Spec(7, serial)});
  side_.Hold({Spec(8, 4)});
  side_.On(RouterEnded{{.id = {7, 2}}}, now_);
  EXPECT_EQ(side_.held(), 3u);
  EXPECT_LE(side_.NextTick(), kSecondUs);
  EXPECT_TRUE(side_.TakeHeld(kSecondUs - 1).empty());
  side_.On(RouterLeft{{1}}, now_);
  const std::vector<SubmitCalled> held = side_.TakeHeld(kSecondUs);
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].spec->id, (RequestId{8, 4}));
  EXPECT_EQ(side_.held(), 0u);
}

TEST_F(RouterSideTest, WhatWaitedIsTakenInSmallSharesAndInOrder) {
  side_.HoldUntil(kSecondUs);
  const uint64_t share = RouterSide::kTakenAtOnce;
  for (uint64_t serial = 1; serial <= share + 1; ++serial) side_.Hold({Spec(7, serial)});
  EXPECT_EQ(side_.TakeHeld(kSecondUs).size(), share);
  EXPECT_TRUE(side_.HasHeld({7, share + 1}));
  EXPECT_TRUE(side_.Holds(kSecondUs)) << "a later one does not overtake it";
  EXPECT_LE(side_.NextTick(), kSecondUs) << "the rest follows at once";
  EXPECT_EQ(side_.TakeHeld(kSecondUs).size(), 1u);
  EXPECT_FALSE(side_.Holds(kSecondUs));
}

TEST_F(RouterSideTest, OneThatIsDrainedHearsOfItOnEachStream) {
  Connect(7, 1);
  Connect(8, 2);
  effects_.clear();
  EXPECT_TRUE(side_.Drain({.router = 7}).ok());
  ASSERT_EQ(Of<OrderRouterDrain>().size(), 1u);
  EXPECT_EQ(Of<OrderRouterDrain>()[0].call, CallId{1});
  Connect(7, 3);
  EXPECT_EQ(Of<OrderRouterDrain>().size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(side_.Drain({.router = 9})));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
