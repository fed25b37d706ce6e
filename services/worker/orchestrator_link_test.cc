// A worker's stream to an orchestrator, over gRPC: it registers, comes back to another orchestrator
// at the same address, and leaves.
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/orchestrator/testing/held_orchestrator.h"
#include "services/rpc/rpc.h"
#include "services/worker/decode/decode_shell.h"
#include "services/worker/testing/emulated_worker.h"

namespace skein::services {
namespace {

using testing::EmulatedWorker;
using testing::HeldOrchestrator;

scheduler::DecodeConfig ConfigOf(const WorkerEngine& engine, int block_tokens_more = 0) {
  scheduler::DecodeConfig config;
  scheduler::WorkerIdentity& identity = config.membership.identity;
  identity.role = scheduler::Role::kDecode;
  identity.model = "m";
  identity.endpoint = absl::StrCat("127.0.0.1:", 1 + block_tokens_more);
  identity.incarnation = {7};
  identity.shape = ShapeOf(engine.engine->Spec());
  identity.shape.block_tokens += block_tokens_more;
  identity.total_blocks = engine.engine->Spec().kv.num_blocks;
  return config;
}

class Orchestrator {
 public:
  explicit Orchestrator(int port, scheduler::TimeUs lease_us = 3 * scheduler::kSecondUs,
                        scheduler::Generation generation = {1, {1}})
      : shell_({.generation = generation.number,
                .incarnation = generation.orchestrator,
                .instance_lease_us = lease_us},
               64),
        service_(&shell_) {
    auto server = ServeRpc(absl::StrCat("127.0.0.1:", port), {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    shell_.Start();
  }
  ~Orchestrator() {
    shell_.Stop();
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

  int port() const { return server_.port; }
  // Until its snapshot is so.
  bool Await(const std::function<bool(const scheduler::OrchestratorSnapshot&)>& so) {
    return testing::Await(&shell_, so);
  }
  bool AwaitPlaceable() {
    return Await([](const scheduler::OrchestratorSnapshot& snapshot) {
      return snapshot.instances.size() == 1 && snapshot.instances[0].placeable;
    });
  }

 private:
  OrchestratorShell shell_;
  OrchestratorService service_;
  RpcServer server_;
};

TEST(OrchestratorLinkTest, AWorkerComesBackToAnotherOrchestratorAndLeaves) {
  auto orchestrator = std::make_unique<Orchestrator>(0);
  const int port = orchestrator->port();
  WorkerEngine engine = EmulatedWorker();
  DecodeShell shell(&engine, absl::StrCat("127.0.0.1:", port), 64);
  std::promise<void> drained;
  shell.Start(ConfigOf(engine), [&drained] { drained.set_value(); });
  ASSERT_TRUE(orchestrator->AwaitPlaceable());
  orchestrator.reset();
  orchestrator = std::make_unique<Orchestrator>(port);
  ASSERT_TRUE(orchestrator->AwaitPlaceable());
  shell.Drain(0);
  EXPECT_EQ(drained.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_TRUE(orchestrator->Await([](const scheduler::OrchestratorSnapshot& snapshot) {
    return snapshot.instances.empty() && snapshot.gone.size() == 1 && snapshot.gone[0].left;
  }));
}

// Word of it comes before the orchestrator has welcomed the worker, or while the welcome travels.
TEST(OrchestratorLinkTest, ATransferMayOpenBeforeTheWelcome) {
  HeldOrchestrator orchestrator(0, scheduler::OrchestratorConfig{});
  WorkerEngine engine = EmulatedWorker();
  DecodeShell shell(&engine, orchestrator.address(), 64);
  scheduler::DecodeConfig config = ConfigOf(engine);
  config.lease_us = 3600 * scheduler::kSecondUs;
  shell.Start(config, [] {});
  orchestrator.AwaitStream();
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {1, 1};
  spec->prompt = {5};
  spec->max_tokens = 1;
  shell.Post(scheduler::AnnounceCalled{{spec, {1}, {{1}}}, {}});
  shell.Post(scheduler::OpenTransferCalled{{1},
                                           {.id = spec->id,
                                            .epoch = {1},
                                            .prefill = {1},
                                            .incarnation = {1},
                                            .shape = ShapeOf(engine.engine->Spec())}});
  ASSERT_TRUE(shell.Inspect([](const scheduler::DecodeSnapshot& snapshot, const absl::Status&) {
    EXPECT_EQ(snapshot.blocks.held, 1) << "it is open";
  }));
  orchestrator.Release();
  EXPECT_TRUE(testing::Await(&orchestrator.shell(), [](const auto& snapshot) {
    return snapshot.instances.size() == 1 && snapshot.instances[0].load.held_blocks == 1;
  })) << "a later report has come";
  EXPECT_EQ(orchestrator.streams(), 1) << "on the same stream";
}

// Its file was lost: the worker's hello tells it of the generation that it has listened to.
TEST(OrchestratorLinkTest, ALostGenerationIsLearntFromTheWorker) {
  const scheduler::TimeUs lease_us = 3 * scheduler::kSecondUs;
  auto orchestrator = std::make_unique<Orchestrator>(0, lease_us, scheduler::Generation{6, {1}});
  const int port = orchestrator->port();
  WorkerEngine engine = EmulatedWorker();
  DecodeShell shell(&engine, absl::StrCat("127.0.0.1:", port), 64);
  shell.Start(ConfigOf(engine), [] {});
  ASSERT_TRUE(orchestrator->AwaitPlaceable());
  orchestrator.reset();
  orchestrator = std::make_unique<Orchestrator>(port, lease_us, scheduler::Generation{1, {2}});
  ASSERT_TRUE(orchestrator->AwaitPlaceable());
  EXPECT_TRUE(orchestrator->Await(
      [](const scheduler::OrchestratorSnapshot& s) { return s.generation == 7; }));
}

TEST(OrchestratorLinkTest, AnInstanceWithoutAStreamIsGivenNothing) {
  Orchestrator orchestrator(0);
  WorkerEngine engine = EmulatedWorker();
  auto shell =
      std::make_unique<DecodeShell>(&engine, absl::StrCat("127.0.0.1:", orchestrator.port()), 64);
  shell->Start(ConfigOf(engine), [] {});
  ASSERT_TRUE(orchestrator.AwaitPlaceable());
  shell.reset();
  EXPECT_TRUE(orchestrator.Await([](const scheduler::OrchestratorSnapshot& snapshot) {
    return snapshot.instances.size() == 1 && !snapshot.instances[0].placeable;
  }));
}

// After two leases of nothing but refusals.
TEST(OrchestratorLinkTest, ARefusedWorkerHearsWhy) {
  Orchestrator orchestrator(0, scheduler::kSecondUs);
  const std::string address = absl::StrCat("127.0.0.1:", orchestrator.port());
  WorkerEngine engine = EmulatedWorker();
  DecodeShell first(&engine, address, 64);
  first.Start(ConfigOf(engine), [] {});
  ASSERT_TRUE(orchestrator.AwaitPlaceable());
  WorkerEngine other = EmulatedWorker();
  DecodeShell second(&other, address, 64);
  std::promise<absl::Status> refused;
  std::once_flag once;
  second.OnRefused([&](const absl::Status& status) {
    std::call_once(once, [&] { refused.set_value(status); });
  });
  second.Start(ConfigOf(other, /*block_tokens_more=*/16), [] {});
  const absl::Status why = refused.get_future().get();
  EXPECT_TRUE(absl::IsFailedPrecondition(why)) << why;
  EXPECT_NE(std::string(why.message()).find("block_tokens"), std::string::npos) << why;
}

}  // namespace
}  // namespace skein::services
