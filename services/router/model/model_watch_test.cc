#include "services/router/model/model_watch.h"

#include <gtest/gtest.h>

#include <thread>

#include "services/router/testing/fake_cluster.h"

namespace skein::services::testing {
namespace {

constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;

class ModelWatchTest : public ::testing::Test {
 protected:
  bool Await(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }
  void AwaitCalls(int more) {
    const int calls = cluster_.list_models_calls() + more;
    EXPECT_TRUE(Await([&] { return cluster_.list_models_calls() >= calls; }));
  }

  FakeCluster cluster_{"m", [](const v1::RequestSpec&) { return Says("x"); }};
  Channels channels_;
};

TEST_F(ModelWatchTest, AMissedAnswerWithinTheLeaseLeavesTheModelReady) {
  cluster_.SetListModels(absl::OkStatus(), kHourUs);
  const ModelWatch watch(&channels_, {cluster_.endpoint()}, {"m"});
  ASSERT_TRUE(Await([&] { return watch.Ready().ok(); }));
  cluster_.SetListModels(absl::UnavailableError(""), kHourUs);  // as of a call that broke
  AwaitCalls(2);  // so that the watch has heard of one failure at least
  EXPECT_TRUE(watch.Ready().ok()) << watch.Ready();
  EXPECT_TRUE(watch.Ready("m").ok());
  // An answer counts at once, also one that says no.
  cluster_.SetListModels(absl::FailedPreconditionError("draining"), kHourUs);
  EXPECT_TRUE(Await([&] { return !watch.Ready().ok(); }));
  cluster_.SetListModels(absl::OkStatus(), kHourUs);
  ASSERT_TRUE(Await([&] { return watch.Ready().ok(); }));
  cluster_.SetInstances(1, 0);
  cluster_.SetListModels(absl::OkStatus(), kHourUs);
  EXPECT_TRUE(Await([&] { return !watch.Ready().ok(); }));
}

TEST_F(ModelWatchTest, WithoutAnAnswerForALeaseNoModelIsReady) {
  cluster_.SetListModels(absl::OkStatus(), 1000);
  const ModelWatch watch(&channels_, {cluster_.endpoint()}, {"m"});
  ASSERT_TRUE(Await([&] { return watch.Ready().ok(); }));
  cluster_.SetListModels(absl::UnavailableError("gone"), 1000);
  EXPECT_TRUE(Await([&] { return !watch.Ready().ok(); }));
  EXPECT_NE(watch.Ready().message().find("Start it, or correct --orchestrator."), std::string::npos)
      << watch.Ready();
  cluster_.SetListModels(absl::OkStatus(), 1000);
  EXPECT_TRUE(Await([&] { return watch.Ready().ok(); }));
}

TEST_F(ModelWatchTest, AnAnswerWithoutALeaseIsMalformed) {
  cluster_.SetListModels(absl::OkStatus(), 0);
  const ModelWatch watch(&channels_, {cluster_.endpoint()}, {"m"});
  AwaitCalls(2);
  EXPECT_NE(watch.Ready().message().find("answer is malformed: instance_lease_us: 0 us"),
            std::string::npos)
      << watch.Ready();
}

TEST_F(ModelWatchTest, BeforeTheFirstAnswerNoModelIsReady) {
  cluster_.SetListModels(absl::UnavailableError("starts"), kHourUs);
  const ModelWatch watch(&channels_, {cluster_.endpoint()}, {"m"});
  AwaitCalls(2);
  EXPECT_FALSE(watch.Ready().ok());
}

TEST_F(ModelWatchTest, AModelIsReadyIfOneCellServesIt) {
  FakeCluster other("m", [](const v1::RequestSpec&) { return Says("x"); });
  cluster_.SetInstances(1, 0);
  cluster_.SetListModels(absl::OkStatus(), kHourUs);
  other.SetListModels(absl::OkStatus(), kHourUs);
  const ModelWatch watch(&channels_, {cluster_.endpoint(), other.endpoint()}, {"m"});
  EXPECT_TRUE(Await([&] { return watch.Ready().ok() && watch.Ready("m").ok(); }));
  other.SetInstances(0, 1);
  ASSERT_TRUE(Await([&] { return !watch.Ready("m").ok(); }));
  const std::string why(watch.Ready().message());
  EXPECT_NE(why.find("In the cell of " + cluster_.endpoint() + ": model 'm' has 1 prefill and 0"),
            std::string::npos)
      << why;
  EXPECT_NE(why.find("In the cell of " + other.endpoint() + ": model 'm' has 0 prefill and 1"),
            std::string::npos)
      << why;
}

}  // namespace
}  // namespace skein::services::testing
