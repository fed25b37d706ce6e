// A router's stream to an orchestrator, over gRPC: a real shell at each end.
#include "services/router/link/router_link.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/orchestrator/testing/held_orchestrator.h"
#include "services/router/link/router_shell.h"
#include "services/rpc/rpc.h"

namespace skein::services {
namespace {

using scheduler::OrchestratorSnapshot;
using testing::HeldOrchestrator;

constexpr uint64_t kRouter = 7;

class Orchestrator {
 public:
  explicit Orchestrator(int port = 0, uint64_t generation = 1, uint64_t incarnation = 1)
      : shell_({.generation = generation, .incarnation = {incarnation}}, 64,
               [this](uint64_t stored) { stored_.set_value(stored); }),
        service_(&shell_) {
    shell_.Start();
    Serve(port);
  }
  ~Orchestrator() {
    shell_.Stop();
    Withdraw();
  }

  void Serve(int port) {
    auto server = ServeRpc(absl::StrCat("127.0.0.1:", port), {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // It lives on, and nobody reaches it.
  void Withdraw() {
    if (server_.server != nullptr) server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server.reset();
  }

  int port() const { return server_.port; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port()); }
  uint64_t AwaitStored() { return stored_.get_future().get(); }
  OrchestratorSnapshot Snapshot() { return shell_.Look()->snapshot; }
  bool Await(const std::function<bool(const OrchestratorSnapshot&)>& so) {
    return testing::Await(&shell_, so);
  }
  bool AwaitRouter() {
    return Await([](const OrchestratorSnapshot& s) { return s.routers.size() == 1; });
  }
  absl::Status Drain(bool undo, bool force = true) {
    grpc::ClientContext context;
    v1::DrainRequest request;
    request.set_router(kRouter);
    request.set_undo(undo);
    request.set_force(force);
    v1::DrainResponse response;
    auto channel = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
    return FromGrpc(v1::Orchestrator::Stub(channel).Drain(&context, request, &response), "o");
  }

 private:
  std::promise<uint64_t> stored_;
  OrchestratorShell shell_;
  OrchestratorService service_;
  RpcServer server_;
};

// Keeps how one request, `id`, ended.
class EndListener final : public RequestListener {
 public:
  void OnAccepted(scheduler::RequestId) override {}
  void OnToken(const scheduler::DeliverToken&) override {}
  void OnEnd(const scheduler::End& end) override { ended_.set_value(end.status); }
  void OnReject(const scheduler::Reject& reject) override { ended_.set_value(reject.status); }
  void OnStop() override {}
  absl::Status Await() { return ended_.get_future().get(); }

  scheduler::RequestId id;

 private:
  std::promise<absl::Status> ended_;
};

class RouterLinkTest : public ::testing::Test {
 protected:
  ~RouterLinkTest() override {
    if (shell_ == nullptr) return;
    shell_->Leave();
    shell_.reset();
  }
  void Start(std::vector<std::string> orchestrators) {
    RouterShellOptions options;
    options.orchestrators = std::move(orchestrators);
    options.incarnation = kRouter;
    shell_ = std::make_unique<RouterShell>(options);
    shell_->Start();
    RouterLink::Self self;
    self.identity.set_endpoint("r:80");
    self.identity.set_host("h");
    self.draining = [this] {
      std::lock_guard lock(mutex_);
      return ordered_ == true;
    };
    self.drain = [this](bool drain) {
      std::lock_guard lock(mutex_);
      ordered_ = drain;
      changed_.notify_all();
    };
    shell_->Join(std::move(self));
  }
  bool AwaitOrdered(bool drain) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ordered_ == drain; });
  }
  bool AwaitReady(const std::vector<bool>& ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      if (shell_->Snapshot().ready == ready) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  std::shared_ptr<EndListener> Submit(const std::string& model) {
    scheduler::RequestSpec spec;
    spec.id = shell_->NextIds(1);
    spec.model = model;
    spec.prompt = {1, 2, 3};
    spec.max_tokens = 1;
    auto listener = std::make_shared<EndListener>();
    listener->id = spec.id;
    shell_->loop().RunAndWait([&] { shell_->Submit(spec, "", listener); });
    return listener;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<bool> ordered_;  // guarded by mutex_
  std::unique_ptr<RouterShell> shell_;
};

// A further router, which counts those of the cluster.
class CountingRouter {
 public:
  CountingRouter(const std::string& orchestrator, uint64_t incarnation)
      : shell_([&] {
          RouterShellOptions options;
          options.orchestrators = {orchestrator};
          options.incarnation = incarnation;
          return options;
        }()) {
    shell_.WatchRouters([this](int64_t routers) {
      std::lock_guard lock(mutex_);
      routers_ = routers;
      changed_.notify_all();
    });
    shell_.Start();
    RouterLink::Self self;
    self.identity.set_endpoint(absl::StrCat("r:", incarnation));
    shell_.Join(std::move(self));
  }
  bool Await(int64_t routers) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return routers_ == routers; });
  }
  void Leave() { shell_.Leave(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t routers_ = 1;  // guarded by mutex_
  RouterShell shell_;
};

TEST_F(RouterLinkTest, EachRouterKnowsHowManyServe) {
  Orchestrator orchestrator;
  CountingRouter stays(orchestrator.address(), 11);
  {
    CountingRouter leaves(orchestrator.address(), 12);
    EXPECT_TRUE(stays.Await(2));
    EXPECT_TRUE(leaves.Await(2));
    leaves.Leave();
  }
  EXPECT_TRUE(stays.Await(1));
  {
    const CountingRouter dies(orchestrator.address(), 13);
    EXPECT_TRUE(stays.Await(2));
  }
  EXPECT_TRUE(stays.Await(1)) << "when its lease has expired";
  stays.Leave();
}

TEST_F(RouterLinkTest, ARouterComesReportsAndLeaves) {
  Orchestrator orchestrator;
  Start({orchestrator.address()});
  ASSERT_TRUE(orchestrator.AwaitRouter());
  const auto router = orchestrator.Snapshot().routers[0];
  EXPECT_EQ(router.identity.router, kRouter);
  EXPECT_EQ(router.identity.endpoint, "r:80");
  EXPECT_TRUE(orchestrator.Await([](const OrchestratorSnapshot& s) {
    return s.routers.size() == 1 && s.routers[0].load.uptime_us > 700'000;
  })) << "it reports twice a second";
  shell_->Leave();
  shell_.reset();
  EXPECT_TRUE(orchestrator.Await([](const OrchestratorSnapshot& s) {
    return s.routers.empty() && s.gone.size() == 1 && s.gone[0].left;
  }));
}

TEST_F(RouterLinkTest, AnOperatorsOrderArrives) {
  Orchestrator orchestrator;
  Start({orchestrator.address()});
  ASSERT_TRUE(orchestrator.AwaitRouter());
  EXPECT_TRUE(absl::IsFailedPrecondition(shell_->MayDrain())) << "it is the last one";
  for (const bool drain : {true, false}) {
    EXPECT_TRUE(orchestrator.Drain(/*undo=*/!drain).ok());
    EXPECT_TRUE(AwaitOrdered(drain));
  }
}

TEST_F(RouterLinkTest, AnOrderThatCameHereIsToldUntilItIsHeard) {
  auto orchestrator = std::make_unique<Orchestrator>();
  const int port = orchestrator->port();
  Start({orchestrator->address()});
  ASSERT_TRUE(orchestrator->AwaitRouter());
  orchestrator.reset();
  shell_->OrderDrain(true);
  orchestrator = std::make_unique<Orchestrator>(port, 2, 2);
  EXPECT_TRUE(orchestrator->Await([](const OrchestratorSnapshot& s) {
    return s.routers.size() == 1 && s.routers[0].draining;
  }));
  EXPECT_TRUE(AwaitOrdered(true)) << "the orchestrator's order, once it has heard";
}

// The router keeps what no orchestrator has heard of, or has lost.
TEST_F(RouterLinkTest, ARequestWaitsForAnOrchestrator) {
  auto orchestrator = std::make_unique<Orchestrator>();
  const int port = orchestrator->port();
  Start({orchestrator->address()});
  ASSERT_TRUE(orchestrator->AwaitRouter());
  orchestrator.reset();
  const auto waiting = Submit("unknown");
  orchestrator = std::make_unique<Orchestrator>(port, 2, 2);
  EXPECT_TRUE(absl::IsNotFound(waiting->Await())) << "the next one answers it";
}

// The orchestrator hears of the end before it has welcomed the router, or while the welcome
// travels.
TEST_F(RouterLinkTest, ARequestMayEndBeforeTheWelcome) {
  // It settles for an hour, so that the request stays unanswered.
  auto orchestrator = std::make_unique<HeldOrchestrator>(
      0,
      scheduler::OrchestratorConfig{
          .generation = 2, .incarnation = {2}, .instance_lease_us = 7200 * scheduler::kSecondUs});
  const int port = orchestrator->port();
  orchestrator->Release();
  Start({orchestrator->address()});
  ASSERT_TRUE(AwaitReady({true}));
  const auto waiting = Submit("m");
  orchestrator = nullptr;
  orchestrator = std::make_unique<HeldOrchestrator>(
      port, scheduler::OrchestratorConfig{.generation = 3, .incarnation = {3}});
  orchestrator->AwaitStream();
  shell_->loop().RunAndWait([&] { shell_->Cancel(waiting->id); });
  orchestrator->Release();
  EXPECT_TRUE(absl::IsNotFound(Submit("unknown")->Await())) << "it answers what comes later";
  EXPECT_EQ(orchestrator->streams(), 1) << "on the same stream";
}

TEST_F(RouterLinkTest, ALostGenerationIsLearntFromTheRouter) {
  auto orchestrator = std::make_unique<Orchestrator>(0, 6, 1);
  const int port = orchestrator->port();
  Start({orchestrator->address()});
  ASSERT_TRUE(orchestrator->AwaitRouter());
  ASSERT_TRUE(AwaitReady({true})) << "it knows the generation";
  orchestrator = nullptr;
  orchestrator = std::make_unique<Orchestrator>(port, 1, 2);
  EXPECT_EQ(orchestrator->AwaitStored(), 7u);
  EXPECT_TRUE(orchestrator->AwaitRouter());
  EXPECT_EQ(orchestrator->Snapshot().generation, 7u);
}

// Of two orchestrators that live, the router listens to the former no more under its generation.
TEST_F(RouterLinkTest, AFormerOrchestratorIsFenced) {
  Orchestrator former(0, 5, 1);
  const int port = former.port();
  Start({former.address()});
  ASSERT_TRUE(former.AwaitRouter());
  ASSERT_TRUE(AwaitReady({true})) << "it knows the generation";
  former.Withdraw();
  auto latter = std::make_unique<Orchestrator>(port, 6, 2);
  ASSERT_TRUE(latter->AwaitRouter());
  ASSERT_TRUE(AwaitReady({true}));
  EXPECT_EQ(former.Snapshot().generation, 5u);
  latter->Withdraw();
  former.Serve(port);
  EXPECT_EQ(former.AwaitStored(), 7u) << "it must take a higher one to be heard";
  EXPECT_EQ(latter->Snapshot().generation, 6u);
}

TEST_F(RouterLinkTest, EachOrchestratorHasItsStreamAndIsAskedInTurn) {
  Orchestrator one(0, 1, 1), other(0, 1, 2);
  Start({one.address(), other.address()});
  ASSERT_TRUE(AwaitReady({true, true}));
  EXPECT_TRUE(one.AwaitRouter());
  EXPECT_TRUE(other.AwaitRouter());
  EXPECT_TRUE(absl::IsNotFound(Submit("unknown")->Await()));
  EXPECT_EQ(shell_->Snapshot().moved_refused, 1u)
      << "the one that was asked first does not serve it";
  one.Withdraw();
  ASSERT_TRUE(AwaitReady({false, true}));
  EXPECT_TRUE(absl::IsNotFound(Submit("unknown")->Await())) << "the other one answers";
  EXPECT_EQ(shell_->Snapshot().moved_refused, 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(shell_->MayDrain())) << "it is the last one of the other";
  EXPECT_TRUE(other.Drain(/*undo=*/false).ok());
  EXPECT_TRUE(AwaitOrdered(true));
}

TEST_F(RouterLinkTest, AnOrderThatCameHereIsToldToAllOrchestrators) {
  Orchestrator one(0, 1, 1), other(0, 1, 2);
  Start({one.address(), other.address()});
  ASSERT_TRUE(AwaitReady({true, true}));
  shell_->OrderDrain(true);
  for (Orchestrator* each : {&one, &other}) {
    EXPECT_TRUE(each->Await([](const OrchestratorSnapshot& s) {
      return s.routers.size() == 1 && s.routers[0].draining;
    }));
  }
}

}  // namespace
}  // namespace skein::services
