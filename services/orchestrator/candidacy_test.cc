// Orchestrators of one cell over the embedded store, each with its own gRPC server: one leads, the
// others refuse and name it, and one of them takes over.
#include "services/orchestrator/candidacy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/router/link/router_shell.h"
#include "services/rpc/rpc.h"

namespace skein::services {
namespace {

bool Await(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

class Orchestrator {
 public:
  Orchestrator(const std::string& folder, uint64_t incarnation,
               int64_t instance_lease_us = 3'000'000) {
    options_.store = "embedded";
    options_.state_dir = folder;
    auto candidacy = Candidacy::Open(options_);
    EXPECT_TRUE(candidacy.ok()) << candidacy.status();
    candidacy_ = *std::move(candidacy);
    scheduler::OrchestratorConfig config;
    config.incarnation = {incarnation};
    config.instance_lease_us = instance_lease_us;
    shell_ = std::make_unique<OrchestratorShell>(
        config, 64, [this](uint64_t generation) { candidacy_->Raise(generation); });
    shell_->StandBy([this] { return candidacy_->Leads(); });
    shell_->WatchHearing({.nobody = [this] { candidacy_->StepAside(); },
                          .somebody = [this] { candidacy_->Heard(); }});
    shell_->Start();
    service_ = std::make_unique<OrchestratorService>(shell_.get());
    server_ = *ServeRpc("127.0.0.1:0", {service_.get()});
    EXPECT_TRUE(candidacy_->Campaign(shell_.get(), incarnation, server_.port).ok());
  }
  ~Orchestrator() {
    shell_->Stop();
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    candidacy_->End();
  }

  std::string Address() const { return absl::StrCat("127.0.0.1:", server_.port); }
  bool IsLeading() const { return shell_->Standing().ok(); }
  void Resign() { candidacy_->Resign(); }
  uint64_t LedGeneration() { return shell_->Count()->snapshot.generation; }
  size_t CountRouters() { return shell_->Look()->snapshot.routers.size(); }
  OrchestratorShell& OfShell() { return *shell_; }

  // What a call to it is answered.
  absl::Status Ask() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::ListModelsResponse response;
    const auto stub = v1::Orchestrator::NewStub(channels_.Get(Address()));
    return FromGrpc(stub->ListModels(&context, {}, &response), "orchestrator");
  }
  // What a worker's stream to it ends with, before a word was said.
  absl::Status AskByStream() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const auto stream =
        v1::Orchestrator::NewStub(channels_.Get(Address()))->ConnectWorker(&context);
    v1::OrchestratorMessages batch;
    while (stream->Read(&batch)) {
    }
    return FromGrpc(stream->Finish(), "orchestrator");
  }

 private:
  OrchestratorOptions options_;
  std::unique_ptr<Candidacy> candidacy_;
  std::unique_ptr<OrchestratorShell> shell_;
  std::unique_ptr<OrchestratorService> service_;
  RpcServer server_;
  Channels channels_;
};

class CandidacyTest : public ::testing::Test {
 protected:
  CandidacyTest() : folder_(::testing::TempDir() + "/" + NameOfTest()) {
    first_ = std::make_unique<Orchestrator>(folder_, 1);
    EXPECT_TRUE(Await([this] { return first_->IsLeading(); }));
    second_ = std::make_unique<Orchestrator>(folder_, 2);
  }
  static std::string NameOfTest() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  bool SecondNamesTheFirst() {
    return Await([this] { return LeaderOf(second_->Ask()) == first_->Address(); });
  }

  const std::string folder_;
  std::unique_ptr<Orchestrator> first_, second_;
};

TEST_F(CandidacyTest, AStandbyRefusesCallsAndStreamsAndNamesTheLeader) {
  EXPECT_TRUE(first_->Ask().ok()) << first_->Ask();
  ASSERT_TRUE(SecondNamesTheFirst()) << second_->Ask();
  EXPECT_EQ(LeaderOf(second_->AskByStream()), first_->Address());
  EXPECT_FALSE(second_->IsLeading());
  EXPECT_EQ(second_->OfShell().times_led(), 0u);
  EXPECT_TRUE(second_->OfShell().CheckInvariants().ok());
  EXPECT_TRUE(second_->OfShell().Count().has_value()) << "its pages show an empty core";
}

TEST_F(CandidacyTest, AfterAResignationTheOtherLeadsWithAHigherGeneration) {
  const uint64_t before = first_->LedGeneration();
  first_->Resign();
  EXPECT_FALSE(first_->IsLeading());
  ASSERT_TRUE(Await([this] { return second_->IsLeading(); }));
  EXPECT_GT(second_->LedGeneration(), before);
  EXPECT_TRUE(second_->Ask().ok()) << second_->Ask();
  EXPECT_TRUE(Await([this] { return LeaderOf(first_->Ask()) == second_->Address(); }));
}

TEST_F(CandidacyTest, AfterALeadersDeathTheOtherLeads) {
  const uint64_t before = first_->LedGeneration();
  first_.reset();  // it does not resign
  ASSERT_TRUE(Await([this] { return second_->IsLeading(); }));
  EXPECT_GT(second_->LedGeneration(), before);
}

// The store is reached, and nothing comes from the workers any more.
TEST_F(CandidacyTest, ALeaderThatHearsNobodyLetsTheOtherLeadUntilItHearsSomebody) {
  constexpr int64_t kLeaseUs = 300'000;
  const std::string folder = folder_ + "_deaf";
  Orchestrator deaf(folder, 11, kLeaseUs);
  ASSERT_TRUE(Await([&] { return deaf.IsLeading(); }));
  Orchestrator other(folder, 12, kLeaseUs);
  ASSERT_TRUE(Await([&] { return LeaderOf(other.Ask()) == deaf.Address(); }));
  for (const uint64_t worker : {1, 2}) {
    scheduler::RegisterCalled event{{worker}, {}};
    event.request.identity = {
        .model = "m", .endpoint = absl::StrCat("w", worker), .incarnation = {worker}};
    event.request.identity.shape.block_tokens = event.request.identity.shape.num_layers = 1;
    event.request.identity.total_blocks = 1;
    deaf.OfShell().Post(event);
  }
  ASSERT_TRUE(Await([&] { return other.IsLeading(); }));
  EXPECT_FALSE(deaf.IsLeading());
  EXPECT_TRUE(Await([&] { return LeaderOf(deaf.AskByStream()) == other.Address(); }));
  other.Resign();
  EXPECT_TRUE(Await([&] { return deaf.IsLeading(); }));
}

// A leader that steps down ends its streams. Its router finds the next leader by itself.
TEST_F(CandidacyTest, ARouterFollowsTheLeadership) {
  ASSERT_TRUE(SecondNamesTheFirst());
  RouterShellOptions options;
  options.orchestrators = {second_->Address() + "+" + first_->Address()};
  options.incarnation = 7;
  RouterShell router(options);
  router.Start();
  RouterLink::Self self;
  self.identity.set_endpoint("r:80");
  self.identity.set_host("h");
  router.Join(std::move(self));
  EXPECT_TRUE(Await([this] { return first_->CountRouters() == 1; })) << "by the standby's word";
  first_->Resign();
  EXPECT_EQ(first_->CountRouters(), 0u);
  EXPECT_TRUE(Await([this] { return second_->CountRouters() == 1; }));
  EXPECT_TRUE(Await([&router] { return router.Snapshot().ready == std::vector<bool>{true}; }));
  router.Leave();
}

// What only a leader may do is not done once the leadership is over, whoever has noticed it yet.
TEST(LeadingShellTest, AnEventAfterTheLeadershipChangesNothing) {
  std::atomic<bool> leads{true};
  OrchestratorShell shell(scheduler::OrchestratorConfig{}, 64);
  shell.StandBy([&leads] { return leads.load(); });
  shell.Start();
  shell.Lead(5);
  EXPECT_EQ(shell.Count()->snapshot.generation, 5u);
  scheduler::RegisterCalled event{{1}, {}};
  event.request.identity = {.model = "m", .endpoint = "host:1", .incarnation = {1}};
  event.request.identity.shape.block_tokens = event.request.identity.shape.num_layers = 1;
  event.request.identity.total_blocks = 1;
  leads = false;
  shell.Post(event);
  EXPECT_TRUE(shell.Inspect(
      [](const auto& snapshot, const absl::Status&) { EXPECT_EQ(snapshot.prefill_instances, 0); }));
  EXPECT_TRUE(LeaderOf(shell.Standing()).has_value()) << "it refuses already";
  leads = true;
  shell.Post(event);
  EXPECT_TRUE(shell.Inspect(
      [](const auto& snapshot, const absl::Status&) { EXPECT_EQ(snapshot.prefill_instances, 1); }));
  shell.StepDown("why");
  EXPECT_EQ(shell.Count()->snapshot.prefill_instances, 0) << "it keeps nothing";
  shell.Lead(7);
  EXPECT_EQ(shell.Count()->snapshot.generation, 7u);
  EXPECT_EQ(shell.times_led(), 2u);
  EXPECT_TRUE(shell.CheckInvariants().ok());
}

TEST(CandidacyOptionsTest, FlagsThatDoNotGoTogetherAreRefused) {
  OrchestratorOptions options;
  EXPECT_TRUE(CheckCandidacy(options).ok());
  options.store = "embedded";
  EXPECT_NE(CheckCandidacy(options).message().find("--state-dir"), std::string::npos);
  options.state_dir = "/tmp/skein";
  EXPECT_TRUE(CheckCandidacy(options).ok()) << CheckCandidacy(options);
  options.host = "0.0.0.0";
  EXPECT_NE(CheckCandidacy(options).message().find("--advertise"), std::string::npos);
  options.advertise = "orchestrator-0";
  EXPECT_TRUE(CheckCandidacy(options).ok());
  options.cell = "a b";
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCandidacy(options)));
  options.cell = "default";
  options.store = "etcd";
  options.etcd = "a:1,,b:1";
  EXPECT_NE(CheckCandidacy(options).message().find("--etcd"), std::string::npos);
}

}  // namespace
}  // namespace skein::services
