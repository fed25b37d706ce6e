#include "scheduler/orchestrator/prefill/rate_pools.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

namespace skein::scheduler::orchestrator {
namespace {

constexpr double kDefaultRate = 1000;

class RatePoolsTest : public ::testing::Test {
 protected:
  // It has reported that it computes `tokens_per_second`; 0: it has not measured yet.
  InstanceId Up(double tokens_per_second, Role role = Role::kPrefill, const char* model = "m") {
    WorkerIdentity identity;
    identity.role = role;
    identity.model = model;
    identity.incarnation = {++last_};
    identity.endpoint = "w:" + std::to_string(last_);
    identity.shape = {{.num_layers = 1, .block_tokens = 4, .dtype = DType::kF32}, "h"};
    identity.total_blocks = 100;
    identity.max_requests = 2;
    const InstanceId id = registry_.Register({identity}, {last_}, 0)->id;
    Report(id, tokens_per_second);
    return id;
  }
  void Report(InstanceId id, double tokens_per_second, int64_t queued_tokens = 0) {
    ReportRequest report{.instance = id, .incarnation = registry_.Find(id)->identity.incarnation};
    report.load.tokens_per_second = tokens_per_second;
    report.load.queued_tokens = queued_tokens;
    ASSERT_TRUE(registry_.Report(report, 0).ok());
  }
  HeadPtr Prompt(int64_t tokens) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, ++serial_};
    spec->model = "m";
    spec->prompt_tokens = tokens;
    return spec;
  }
  std::optional<InstanceId> Pick(int64_t tokens, const char* model = "m") {
    const auto any = [](InstanceId) { return true; };
    const std::optional<InstanceId> picked = pools_.Of(model).Pick(tokens, any);
    EXPECT_TRUE(pools_.CheckInvariants().ok()) << pools_.CheckInvariants();
    return picked;
  }
  void TearDown() override {
    EXPECT_TRUE(registry_.CheckInvariants().ok()) << registry_.CheckInvariants();
    EXPECT_TRUE(pools_.CheckInvariants().ok()) << pools_.CheckInvariants();
  }

  uint64_t last_ = 0;
  uint64_t serial_ = 0;
  Registry registry_{1, 3 * kSecondUs};
  RatePools pools_{&registry_, kDefaultRate};
};

TEST_F(RatePoolsTest, AModelWithoutPrefillInstancesHasNoCandidate) {
  EXPECT_EQ(Pick(100), std::nullopt);
  Up(100, Role::kDecode);
  Up(100, Role::kPrefill, "other");
  EXPECT_EQ(Pick(100), std::nullopt);
  EXPECT_NE(Pick(100, "other"), std::nullopt);
}

TEST_F(RatePoolsTest, AnInstanceThatHasNotMeasuredCountsWithTheDefaultRate) {
  const InstanceId unmeasured = Up(0);
  const InstanceId slower = Up(kDefaultRate / 2);
  EXPECT_EQ(pools_.CandidateOf(*registry_.Find(unmeasured)).tokens_per_second, kDefaultRate);
  EXPECT_EQ(Pick(100), unmeasured);
  Report(slower, kDefaultRate * 2);
  EXPECT_EQ(Pick(100), slower);
}

TEST_F(RatePoolsTest, QueuesThatAreReportedAndPromptsThatAreNotYetDelayAnInstance) {
  const InstanceId one = Up(1000);
  const InstanceId two = Up(900);
  EXPECT_EQ(Pick(100), one);
  Report(one, 1000, /*queued_tokens=*/50);
  EXPECT_EQ(Pick(100), two);
  Report(one, 1000);
  EXPECT_EQ(Pick(100), one);
  const HeadPtr prompt = Prompt(50);
  registry_.Find(one)->Place(prompt, {5});
  EXPECT_EQ(Pick(100), two);
  registry_.Find(one)->Take(prompt->id);
  EXPECT_EQ(Pick(100), one);
}

TEST_F(RatePoolsTest, AnInstanceIsInItsOrderExactlyWhileItTakesPlans) {
  const InstanceId one = Up(1000);
  const InstanceId two = Up(10);
  EXPECT_EQ(Pick(100), one);
  registry_.Avoid(*registry_.Find(one));
  EXPECT_EQ(Pick(100), two);
  Report(one, 1000);
  EXPECT_EQ(Pick(100), one);
  registry_.Find(one)->Place(Prompt(1), {5});
  registry_.Find(one)->Place(Prompt(1), {6});  // full
  EXPECT_EQ(Pick(100), two);
  registry_.Disconnect(*registry_.Find(two));
  EXPECT_EQ(Pick(100), std::nullopt);
}

TEST_F(RatePoolsTest, InstancesThatComeAndGoAreSeenAtTheNextChoice) {
  const InstanceId one = Up(10);
  EXPECT_EQ(Pick(100), one);
  const InstanceId two = Up(1000);
  EXPECT_EQ(Pick(100), two);
  registry_.Remove(two);
  EXPECT_EQ(Pick(100), one);
  registry_.Remove(one);
  EXPECT_EQ(Pick(100), std::nullopt);
}

// The change reached the order's other reader, so it is neither noted nor in the order.
TEST_F(RatePoolsTest, AnEntryThatIsOutOfDateViolatesTheInvariants) {
  const InstanceId one = Up(1000);
  EXPECT_EQ(Pick(100), one);
  Report(one, 1000, /*queued_tokens=*/50);
  EXPECT_TRUE(pools_.CheckInvariants().ok()) << "the change is noted";
  registry_.TakeChanged("m", Role::kPrefill);
  const absl::Status status = pools_.CheckInvariants();
  EXPECT_EQ(status.message(), "RatePools: the entry of instance 1 is out of date");
  Report(one, 1000, /*queued_tokens=*/60);
  EXPECT_EQ(Pick(100), one);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
