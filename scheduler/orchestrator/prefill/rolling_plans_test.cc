#include "scheduler/orchestrator/prefill/rolling_plans.h"

#include "scheduler/orchestrator/prefill/testing/prefill_plans_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

using Start = RollingPlans::Start;

class RollingPlansTest : public PrefillPoolTest {
 protected:
  RollingPlansTest() : PrefillPoolTest("rolling") {}

  // An instance that takes plans.
  InstanceId UpReported() {
    const InstanceId id = Up();
    registry_.Find(id)->reported = true;
    registry_.Recount(*registry_.Find(id));
    return id;
  }
  Request& Add(int64_t tokens) {
    Request& request = Submit(tokens);
    plans_.Add(&request, Pool(), now_);
    requests_.Enter(request, State::kQueued);
    return request;
  }
  // As PrefillFlow takes them.
  std::vector<Start> Decide() {
    std::vector<Start> starts = plans_.Decide("m", Pool(), now_);
    for (const Start& start : starts) {
      Request& request = requests_.At(start.id);
      request.rolling_running = true;
      requests_.Enter(request, State::kAssigning);
    }
    Check();
    return starts;
  }
  void Remove(Request* request) {
    plans_.Remove(request, Pool(), now_);
    Check();
  }
  std::vector<RequestId> Queued() const { return plans_.QueuedOf("m", requests_); }
  void Check() {
    const absl::Status status = plans_.CheckInvariants(requests_, pools_);
    EXPECT_TRUE(status.ok()) << status;
  }
  void TearDown() override {
    Check();
    PrefillPoolTest::TearDown();
  }

  TimeUs now_ = 0;
  RollingPlans plans_;
};

TEST_F(RollingPlansTest, ARequestStartsOnIdleInstancesAndIsForgottenAfterItsLastChunk) {
  UpReported();
  Request& request = Add(100);
  EXPECT_EQ(Queued(), (std::vector<RequestId>{request.spec->id}));
  const std::vector<Start> starts = Decide();
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].id, request.spec->id);
  EXPECT_EQ(starts[0].chunk.tokens, 100);
  EXPECT_TRUE(Queued().empty());
  EXPECT_NE(request.rolling_key, 0);
  now_ = 100'000;
  plans_.EndChunk(&request, Pool(), now_);
  EXPECT_EQ(request.rolling_key, 0);
  EXPECT_FALSE(request.rolling_running);
  Remove(&request);  // ignored
}

TEST_F(RollingPlansTest, WhatDoesNotFitWaitsUntilAChunkEnds) {
  UpReported();
  Request& first = Add(1000);
  ASSERT_EQ(Decide().size(), 1u);
  const Request& second = Add(1000);
  EXPECT_TRUE(Decide().empty());
  EXPECT_EQ(Queued(), (std::vector<RequestId>{second.spec->id}));
  now_ = kSecondUs;
  plans_.EndChunk(&first, Pool(), now_);
  const std::vector<Start> starts = Decide();
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].id, second.spec->id);
}

TEST_F(RollingPlansTest, ARunningRequestThatIsRemovedFreesItsInstances) {
  UpReported();
  Request& first = Add(1000);
  ASSERT_EQ(Decide().size(), 1u);
  Request& waits = Add(1000);
  const Request& last = Add(1000);
  EXPECT_TRUE(Decide().empty());
  Remove(&waits);
  EXPECT_EQ(waits.rolling_key, 0);
  EXPECT_TRUE(Decide().empty()) << "it held no instance";
  Remove(&first);
  EXPECT_FALSE(first.rolling_running);
  const std::vector<Start> starts = Decide();
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].id, last.spec->id);
}

TEST_F(RollingPlansTest, NothingStartsOnInstancesThatTakeNothingNow) {
  const InstanceId only = UpReported();
  Add(100);
  registry_.Avoid(*registry_.Find(only));
  EXPECT_TRUE(Decide().empty());
  registry_.Find(only)->avoid = false;
  registry_.Disconnect(*registry_.Find(only));
  EXPECT_TRUE(Decide().empty());
  const InstanceId other = UpReported();
  const std::vector<Start> starts = Decide();
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(starts[0].chunk.instances.size(), 1u);
  EXPECT_EQ(Pool()->IdAt(static_cast<size_t>(starts[0].chunk.instances[0])), other);
}

TEST_F(RollingPlansTest, AKeyThatTheRequestDoesNotHaveViolatesTheInvariants) {
  UpReported();
  Request& request = Add(100);
  const int64_t key = request.rolling_key;
  request.rolling_key = key + 1;
  EXPECT_EQ(plans_.CheckInvariants(requests_, pools_).message(),
            "RollingPlans: 7/1 is listed under a key that is not its own");
  request.rolling_key = key;
  Check();
  const Request& other = Submit(100);
  requests_.At(other.spec->id).rolling_key = key + 1;
  EXPECT_EQ(plans_.CheckInvariants(requests_, pools_).message(),
            "RollingPlans: 7/2 is not listed under its key");
  requests_.At(other.spec->id).rolling_key = 0;
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
