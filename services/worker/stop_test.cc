// A shell that is stopped while it works, undrained: what main does when the grace is over and the
// engine still runs.
#include <thread>

#include "gtest/gtest.h"
#include "proto/common.pb.h"
#include "services/worker/decode/decode_shell.h"
#include "services/worker/testing/emulated_worker.h"

namespace skein::services {
namespace {

using testing::EmulatedWorker;

constexpr int64_t kOutputTokens = 4000;  // far more than are sampled before the stop

// Takes an answer that nobody reads.
class Ignored : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override {}
};

// Brings a request to where it samples tokens.
class RunningRequest {
 public:
  RunningRequest(const WorkerEngine& engine, DecodeShell* shell) {
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = {1, 1};
    spec->model = "m";
    spec->prompt = {5};
    spec->max_tokens = kOutputTokens;
    v1::SamplingParams sampling;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
    spec->sampling = sampling.SerializeAsString();
    scheduler::OpenTransferRequest grant;
    grant.id = spec->id;
    grant.epoch = {1};
    grant.prefill = {1};
    grant.incarnation = {1};
    grant.shape = ShapeOf(engine.engine->Spec());
    scheduler::CommitRequest commit;
    commit.id = spec->id;
    commit.epoch = {1};
    commit.prefill = grant.prefill;
    const auto& kv = engine.engine->Spec().kv;
    commit.bytes_per_layer.assign(static_cast<size_t>(kv.num_layers), kv.BlockBytes());
    shell->Post(scheduler::AnnounceCalled{{spec, {1}, {grant.incarnation}}, {}});
    EXPECT_TRUE(shell->OpenTransfer(grant, {&calls_[1], &granted_}));
    EXPECT_TRUE(shell->Commit(commit, {&calls_[2], &committed_}));
  }

 private:
  Ignored calls_[3];
  v1::OpenTransferResponse granted_;
  v1::CommitResponse committed_;
};

TEST(StoppedShell, ADecodeShellEndsBetweenTwoStepsOfARunningRequest) {
  for (int round = 0; round < 5; ++round) {
    WorkerEngine engine = EmulatedWorker();
    DecodeShell shell(&engine, "127.0.0.1:1", 64);
    scheduler::DecodeConfig config;
    config.memory = engine.description;
    config.membership.identity.shape = ShapeOf(engine.engine->Spec());
    config.membership.identity.total_blocks = engine.engine->Spec().kv.num_blocks;
    shell.Start(config, [] {});
    const RunningRequest request(engine, &shell);
    uint64_t steps = 0;
    while (steps < 3) {
      ASSERT_TRUE(
          shell.Inspect([&](const scheduler::DecodeSnapshot& snapshot, const absl::Status&) {
            ASSERT_EQ(snapshot.failed, 0u);
            steps = snapshot.steps;
          }));
      ASSERT_FALSE(HasFailure());
      std::this_thread::yield();
    }
    shell.Stop();
    EXPECT_FALSE(shell.Inspect([](const scheduler::DecodeSnapshot&, const absl::Status&) {}));
  }
}

}  // namespace
}  // namespace skein::services
