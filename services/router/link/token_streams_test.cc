// The token streams of a router's shell over real gRPC: what shares one stream does not share its
// fate in anything but the stream's end.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/common.pb.h"
#include "services/router/link/router_shell.h"
#include "services/router/testing/fake_cluster.h"

namespace skein::services::testing {
namespace {

constexpr int32_t kTokens = 2000;  // far more than the credit of a request

Script Long(int32_t tokens) {
  Script script;
  for (int32_t i = 0; i < tokens; ++i) script.tokens.push_back(Sampled(i));
  return script;
}

// Counts what comes for each request.
class Recorder final : public RequestListener {
 public:
  void OnAccepted(scheduler::RequestId) override {}
  void OnToken(const scheduler::DeliverToken& token) override {
    if (token.index == 0 && at_first) at_first(token.id);
    std::lock_guard lock(mu_);
    in_order_ = in_order_ && token.index == tokens_[token.id] && token.token == token.index;
    ++tokens_[token.id];
    changed_.notify_all();
  }
  void OnEnd(const scheduler::End& end) override {
    std::lock_guard lock(mu_);
    ends_[end.id] = end.status;
    changed_.notify_all();
  }
  void OnReject(const scheduler::Reject& reject) override { OnEnd({.id = reject.id}); }
  void OnStop() override {}

  // Runs on the loop, with the first token of each request. Before the first one is submitted.
  std::function<void(scheduler::RequestId)> at_first;

  bool AwaitEnd(scheduler::RequestId id) {
    return Await([this, id] { return ends_.count(id) > 0; });
  }
  bool AwaitTokens(scheduler::RequestId id, int64_t tokens) {
    return Await([this, id, tokens] { return tokens_[id] >= tokens; });
  }
  int64_t tokens(scheduler::RequestId id) {
    std::lock_guard lock(mu_);
    return tokens_[id];
  }
  absl::Status end(scheduler::RequestId id) {
    std::lock_guard lock(mu_);
    return ends_.at(id);
  }
  bool ended(scheduler::RequestId id) {
    std::lock_guard lock(mu_);
    return ends_.count(id) > 0;
  }
  bool in_order() {
    std::lock_guard lock(mu_);
    return in_order_;
  }

 private:
  template <typename Condition>
  bool Await(Condition condition) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::seconds(30), condition);
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::map<scheduler::RequestId, int64_t> tokens_;
  std::map<scheduler::RequestId, absl::Status> ends_;
  bool in_order_ = true;
};

class RouterTokenStreams : public ::testing::Test {
 protected:
  // `resumes`: the router attaches again where a stream broke, and the worker holds its requests.
  void Start(FakeCluster::ScriptFn script, bool resumes = false) {
    cluster_ = std::make_unique<FakeCluster>("m", std::move(script), resumes ? 1 : 0);
    scheduler::RouterConfig core;
    core.replan_wait_us = 1000;  // the fake orchestrator plans nothing anew
    core.resume_wait_us = resumes ? scheduler::kSecondUs : 0;
    shell_ = std::make_unique<RouterShell>(RouterShellOptions{core, {cluster_->endpoint()}, 7});
    shell_->Start();
    shell_->Join({});
  }
  void TearDown() override {
    const absl::Status invariants = shell_->CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    shell_.reset();
    cluster_.reset();
  }

  scheduler::RequestId Submit(int64_t max_tokens, bool paused = false,
                              const std::string& traceparent = "") {
    scheduler::RequestSpec spec;
    spec.id = shell_->NextIds(1);
    spec.model = "m";
    spec.prompt = {1, 2, 3};
    spec.max_tokens = max_tokens;
    OnLoop([&] {
      shell_->Submit(spec, traceparent, recorder_);
      if (paused) shell_->SetPaused(spec.id, true);
    });
    return spec.id;
  }
  void OnLoop(const std::function<void()>& action) {
    ASSERT_TRUE(shell_->loop().RunAndWait(action));
  }

  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
  std::unique_ptr<FakeCluster> cluster_;
  std::unique_ptr<RouterShell> shell_;
};

FakeCluster::ScriptFn AsManyAsAsked() {
  return [](const v1::RequestSpec& spec) { return Long(static_cast<int32_t>(spec.max_tokens())); };
}

TEST_F(RouterTokenStreams, RequestsShareOneStream) {
  Start(AsManyAsAsked());
  std::vector<scheduler::RequestId> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(Submit(300, false, "00-trace"));
  for (const scheduler::RequestId id : ids) {
    ASSERT_TRUE(recorder_->AwaitEnd(id));
    EXPECT_TRUE(recorder_->end(id).ok()) << recorder_->end(id);
    EXPECT_EQ(recorder_->tokens(id), 300);
  }
  EXPECT_TRUE(recorder_->in_order());
  EXPECT_EQ(cluster_->token_streams(), 1);
  EXPECT_EQ(cluster_->token_traceparent(), "00-trace");
}

TEST_F(RouterTokenStreams, APausedRequestDoesNotHoldUpTheOthers) {
  Start(AsManyAsAsked());
  const scheduler::RequestId paused = Submit(kTokens);
  ASSERT_TRUE(recorder_->AwaitTokens(paused, 1));
  OnLoop([&] { shell_->SetPaused(paused, true); });
  const scheduler::RequestId late = Submit(kTokens, /*paused=*/true);
  for (int i = 0; i < 3; ++i) {
    const scheduler::RequestId other = Submit(kTokens);
    ASSERT_TRUE(recorder_->AwaitEnd(other));
    EXPECT_EQ(recorder_->tokens(other), kTokens);
  }
  // They had the time for everything. What came of the paused one is within the credit that it had.
  EXPECT_FALSE(recorder_->ended(paused));
  EXPECT_LT(recorder_->tokens(paused), kTokens);
  EXPECT_EQ(recorder_->tokens(late), 0) << "it was paused before its attach";
  OnLoop([&] {
    shell_->SetPaused(paused, false);
    shell_->SetPaused(late, false);
  });
  for (const scheduler::RequestId id : {paused, late}) {
    ASSERT_TRUE(recorder_->AwaitEnd(id));
    EXPECT_EQ(recorder_->tokens(id), kTokens);
  }
  EXPECT_TRUE(recorder_->in_order());
}

TEST_F(RouterTokenStreams, ABreakEndsAllRequestsOfTheStreamAndTheNextAttachOpensAnother) {
  std::atomic<bool> hold{true};
  Start([&hold](const v1::RequestSpec&) {
    Script script = Long(5);
    script.hold = hold;
    return script;
  });
  const scheduler::RequestId first = Submit(10), second = Submit(10);
  ASSERT_TRUE(recorder_->AwaitTokens(first, 5));
  ASSERT_TRUE(recorder_->AwaitTokens(second, 5));
  cluster_->BreakTokenStreams();
  for (const scheduler::RequestId id : {first, second}) {
    ASSERT_TRUE(recorder_->AwaitEnd(id));
    EXPECT_TRUE(absl::IsUnavailable(recorder_->end(id))) << recorder_->end(id);
  }
  hold = false;
  const scheduler::RequestId next = Submit(5);
  ASSERT_TRUE(recorder_->AwaitEnd(next));
  EXPECT_TRUE(recorder_->end(next).ok()) << recorder_->end(next);
  EXPECT_EQ(cluster_->token_streams(), 2);
}

TEST_F(RouterTokenStreams, ARequestGoesOnAtItsWorkerAfterABreak) {
  Start(AsManyAsAsked(), /*resumes=*/true);
  // With little of the answers, so that they are not over before the break.
  recorder_->at_first = [this](scheduler::RequestId id) { shell_->SetPaused(id, true); };
  const scheduler::RequestId first = Submit(kTokens), second = Submit(kTokens);
  ASSERT_TRUE(recorder_->AwaitTokens(first, 1));
  ASSERT_TRUE(recorder_->AwaitTokens(second, 1));
  cluster_->BreakTokenStreams();
  ASSERT_TRUE(cluster_->AwaitTokenStreams(2));
  OnLoop([&] {
    shell_->SetPaused(first, false);
    shell_->SetPaused(second, false);
  });
  for (const scheduler::RequestId id : {first, second}) {
    ASSERT_TRUE(recorder_->AwaitEnd(id));
    EXPECT_TRUE(recorder_->end(id).ok()) << recorder_->end(id);
    EXPECT_EQ(recorder_->tokens(id), kTokens);
  }
  EXPECT_TRUE(recorder_->in_order());
  EXPECT_EQ(cluster_->specs().size(), 2u) << "nothing was submitted again";
  EXPECT_EQ(shell_->Snapshot().reattached, 2u);
  EXPECT_EQ(shell_->Snapshot().resumes, 0u);
}

TEST_F(RouterTokenStreams, ARouterThatLeavesDetachesFromItsRequests) {
  Start(
      [](const v1::RequestSpec&) {
        Script script = Long(5);
        script.hold = true;
        return script;
      },
      /*resumes=*/true);
  const scheduler::RequestId id = Submit(10);
  ASSERT_TRUE(recorder_->AwaitTokens(id, 5));
  shell_->Leave();
  EXPECT_TRUE(cluster_->AwaitEnded(0, 1)) << "the worker would keep what a broken stream had";
}

TEST_F(RouterTokenStreams, ACancelledRequestIsDetachedAndTheOthersGoOn) {
  Start([](const v1::RequestSpec& spec) {
    Script script = Long(5);
    script.hold = spec.max_tokens() == 10;
    return script;
  });
  const scheduler::RequestId first = Submit(10), second = Submit(10);
  ASSERT_TRUE(recorder_->AwaitTokens(first, 5));
  ASSERT_TRUE(recorder_->AwaitTokens(second, 5));
  OnLoop([&] { shell_->Cancel(first); });
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
  EXPECT_EQ(cluster_->attached(), 1);
  const scheduler::RequestId third = Submit(5);
  ASSERT_TRUE(recorder_->AwaitEnd(third));
  EXPECT_FALSE(recorder_->ended(second));
  EXPECT_EQ(cluster_->token_streams(), 1);
}

TEST_F(RouterTokenStreams, ARequestEndsAtItsDeadlineThoughItsStreamGoesOn) {
  Start([](const v1::RequestSpec&) {
    Script script = Long(1);
    script.hold = true;
    return script;
  });
  scheduler::RequestSpec spec;
  spec.id = shell_->NextIds(1);
  spec.model = "m";
  spec.prompt = {1};
  spec.max_tokens = 10;
  spec.deadline_us = 300'000;
  OnLoop([&] { shell_->Submit(spec, "", recorder_); });
  ASSERT_TRUE(recorder_->AwaitEnd(spec.id));
  EXPECT_TRUE(absl::IsDeadlineExceeded(recorder_->end(spec.id)));
  EXPECT_TRUE(cluster_->AwaitEnded(0, 1));
}

}  // namespace
}  // namespace skein::services::testing
