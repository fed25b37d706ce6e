// A prefill-worker hands the KV of a prompt to a bound group of two decode-workers: their shells,
// gRPC, step feed, communicators and transport are real; the emulated engines' tokens tell whether
// every block of every head is where it must be.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/comm/paths/worker_fabric.h"
#include "gtest/gtest.h"
#include "proto/decode_worker.grpc.pb.h"
#include "services/rpc/rpc.h"
#include "services/worker/decode/decode_service.h"
#include "services/worker/prefill/prefill_shell.h"
#include "services/worker/testing/emulated_worker.h"
#include "services/worker/testing/formation_orchestrator.h"

namespace skein::services {
namespace {

constexpr scheduler::TimeUs kKeepUs = 60 * scheduler::kSecondUs;
constexpr int kBlocks = 64;
constexpr int kPrompt = 45;
constexpr int kOutput = 20;

bool Await(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// What an emulated device needs to reach those of `network`, and to step with those of its node.
WorkerEngine EngineOn(const std::shared_ptr<engine::LoopbackFabric>& network) {
  WorkerEngine out;
  out.transport = engine::MakeLoopbackTransport(network);
  out.fabric = *engine::MakeHostFabric({.hosts = {.tls = "self,shm"}});
  engine::EmulatedOptions options;
  options.kv = {{.num_layers = 2,
                 .kv_heads = 4,
                 .head_dim = 8,
                 .block_tokens = 4,
                 .dtype = engine::DType::kBF16},
                kBlocks};
  options.vocab_size = 1 << 20;
  out.engine = std::make_unique<engine::FaultyEngine>(*engine::EmulatedEngine::Create(options),
                                                      engine::Faults{});
  out.group_ranks_max = 2;
  for (const engine::KvRegion& region : out.engine->KvRegions()) {
    out.regions.push_back(
        out.transport->Register(region.base, static_cast<size_t>(region.bytes))->id);
  }
  out.description = *out.transport->Describe(out.regions);
  return out;
}

scheduler::WorkerIdentity IdentityOf(const WorkerEngine& engine, scheduler::Role role,
                                     uint64_t number, const std::string& endpoint) {
  scheduler::WorkerIdentity identity;
  identity.role = role;
  identity.model = "m";
  identity.endpoint = endpoint;
  identity.incarnation = {number};
  identity.shape = ShapeOf(engine.engine->Spec());
  identity.shape.model_hash = "h";
  identity.total_blocks = kBlocks;
  identity.comm_address = engine.fabric->Address();
  return identity;
}

struct Decoder {
  Decoder(const std::shared_ptr<engine::LoopbackFabric>& network, const std::string& orchestrator,
          uint64_t number)
      : engine(EngineOn(network)), shell(&engine, orchestrator, 1024), service(&shell) {
    server = *ServeRpc("127.0.0.1:0", {&service});
    endpoint = absl::StrCat("127.0.0.1:", server.port);
    scheduler::DecodeConfig config;
    config.membership.identity = IdentityOf(engine, scheduler::Role::kDecode, number, endpoint);
    config.memory = engine.description;
    shell.Start(config, [] {});
  }
  ~Decoder() {
    shell.Stop();
    server.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }
  StepTotals Of(const std::string& mode) {
    for (const StepTotals& totals : shell.StepTotalsByMode()) {
      if (totals.mode == mode) return totals;
    }
    return {mode};
  }
  int64_t FreeBlocks() {
    int64_t free = -1;
    shell.Inspect([&](const scheduler::DecodeSnapshot& snapshot, const absl::Status& invariants) {
      EXPECT_TRUE(invariants.ok()) << invariants;
      free = snapshot.blocks.free;
    });
    return free;
  }

  WorkerEngine engine;
  DecodeShell shell;
  DecodeService service;
  RpcServer server;
  std::string endpoint;
};

class GroupHandoff : public ::testing::Test {
 protected:
  using Phase = scheduler::FormationTold::Phase;

  void SetUp() override {
    for (uint64_t i = 0; i < 2; ++i) {
      decoders_.push_back(std::make_unique<Decoder>(network_, orchestrator_.address(), 1 + i));
    }
    scheduler::PrefillConfig config;
    config.membership.identity =
        IdentityOf(prefill_engine_, scheduler::Role::kPrefill, kPrefill, "p:1");
    prefill_.Start(config, [] {});
    orchestrator_.AwaitRegistered(kPrefill - 1);
    orchestrator_.OrderGroups(1, decoders_.size());
    for (const auto& decoder : decoders_) {
      ASSERT_TRUE(Await([&] { return !decoder->shell.GroupWays().empty(); }));
    }
  }
  void TearDown() override {
    prefill_.Stop();
    decoders_.clear();
  }

  void Bind() {
    ++formation_;
    for (uint64_t i = 0; i < 2; ++i) {
      orchestrator_.Tell(i, scheduler::PrepareFormation{formation_, 1, 0, 2, kKeepUs});
    }
    for (uint64_t i = 0; i < 2; ++i) Expect(i, Phase::kPrepared);
    orchestrator_.Tell(0, scheduler::CommitFormation{formation_});
    for (uint64_t i = 0; i < 2; ++i) Expect(i, Phase::kBound);
  }
  void Expect(uint64_t decoder, Phase phase) {
    const scheduler::FormationTold told = orchestrator_.Await(decoder, formation_, phase);
    ASSERT_EQ(told.phase, phase) << told.why;
  }

  // The answer of a request that is prefilled by the prefill-worker and decoded at the first
  // decode-worker, in its bound group if `formation` is not 0.
  std::vector<int32_t> AnswerOf(uint64_t serial, uint64_t formation) {
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = {1, serial};
    spec->model = "m";
    for (int i = 0; i < kPrompt; ++i) spec->prompt.push_back(100 + 7 * i);
    spec->max_tokens = kOutput;
    v1::SamplingParams sampling;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
    sampling.set_top_logprobs(-1);
    spec->sampling = sampling.SerializeAsString();
    const scheduler::Epoch epoch{serial};
    Decoder& lead = *decoders_[0];
    lead.shell.Post(scheduler::AnnounceCalled{
        {.spec = spec, .epoch = epoch, .writers = {{kPrefill}}, .formation = formation}, {}});
    prefill_.Post(
        scheduler::AssignCalled{{serial},
                                {.spec = spec,
                                 .epoch = epoch,
                                 .sequence = {serial},
                                 .placed = scheduler::Placed{epoch, {1}, lead.endpoint, {1}}}});
    return Read(serial);
  }
  std::vector<int32_t> Read(uint64_t serial) {
    const auto stub = v1::DecodeWorker::NewStub(
        grpc::CreateChannel(decoders_[0]->endpoint, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    const auto stream = stub->StreamTokens(&context);
    v1::TokenStreamRequest request;
    auto* attach = request.add_attach();
    attach->mutable_id()->set_router(1);
    attach->mutable_id()->set_serial(serial);
    attach->set_epoch(serial);
    attach->set_credit(1000);
    attach->set_ahead(true);
    EXPECT_TRUE(stream->Write(request));
    std::vector<int32_t> tokens;
    v1::TokenBatch batch;
    bool ended = false;
    while (!ended && stream->Read(&batch)) {
      for (const auto& sequence : batch.sequences()) {
        tokens.insert(tokens.end(), sequence.tokens().begin(), sequence.tokens().end());
        ended = ended || sequence.has_finished();
      }
    }
    EXPECT_TRUE(ended);
    context.TryCancel();
    while (stream->Read(&batch)) {
    }
    stream->Finish();
    return tokens;
  }

  static constexpr uint64_t kPrefill = 5;  // its incarnation
  std::shared_ptr<engine::LoopbackFabric> network_ = engine::MakeLoopbackFabric();
  testing::FormationOrchestrator orchestrator_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  WorkerEngine prefill_engine_ = EngineOn(network_);
  PrefillShell prefill_{&prefill_engine_, orchestrator_.address(), 1024};
  uint64_t formation_ = 0;
};

TEST_F(GroupHandoff, ABoundGroupGoesOnFromThePrefillWorkersKv) {
  const std::vector<int32_t> expected = AnswerOf(1, /*formation=*/0);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kOutput));
  ASSERT_NO_FATAL_FAILURE(Bind());
  EXPECT_EQ(AnswerOf(2, formation_), expected);
  for (const auto& decoder : decoders_) {
    // A token in each step: nothing was computed again.
    EXPECT_EQ(decoder->Of("tp").steps, static_cast<uint64_t>(kOutput - 1));
    EXPECT_EQ(decoder->Of("tp").tokens, static_cast<uint64_t>(kOutput - 1));
    EXPECT_TRUE(Await([&] { return decoder->FreeBlocks() == kBlocks; }));
  }
}

}  // namespace
}  // namespace skein::services
