// A prefill-worker hands the KV of a prompt to a bound group of two decode-workers: their shells,
// gRPC, step feed, communicators and transport are real; the emulated engines' tokens tell whether
// every block of every head is where it must be.
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/comm/paths/worker_fabric.h"
#include "gtest/gtest.h"
#include "proto/decode_worker.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/credentials.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/rpc.h"
#include "services/worker/decode/decode_service.h"
#include "services/worker/prefill/prefill_shell.h"
#include "services/worker/testing/emulated_worker.h"

namespace skein::services {
namespace {

constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;
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

// Welcomes workers and sends them what the test orders.
class Orchestrator final : public v1::Orchestrator::CallbackService {
 public:
  Orchestrator() { rpc_ = *ServeRpc("127.0.0.1:0", {this}); }
  ~Orchestrator() override {
    rpc_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  std::string endpoint() const { return absl::StrCat("127.0.0.1:", rpc_.port); }
  bool Knows(const std::string& endpoint) {
    const std::lock_guard lock(mutex_);
    return workers_.contains(endpoint);
  }
  void Send(const std::string& endpoint, v1::OrchestratorMessage message) {
    const std::lock_guard lock(mutex_);
    Write(workers_.at(endpoint), std::move(message));
  }
  // The latest that it told of formations.
  int64_t PhaseOf(const std::string& endpoint) {
    const std::lock_guard lock(mutex_);
    return phases_.contains(endpoint) ? phases_.at(endpoint) : -1;
  }

  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    auto worker = std::make_shared<Worker>();
    worker->stream = Stream::Make(context, [](const std::function<void()>& hook) { hook(); });
    worker->stream->Open({.message = [this, worker](const auto& message) { Take(worker, message); },
                          .ended = [] {}});
    return worker->stream.get();
  }

 private:
  using Stream = ServerStream<v1::WorkerMessages, v1::OrchestratorMessages>;
  struct Worker {
    std::shared_ptr<Stream> stream;
    MessageCounters counters{scheduler::FirstNumberOf(1)};
    std::string endpoint;
  };

  static void Write(const std::shared_ptr<Worker>& worker, v1::OrchestratorMessage message) {
    worker->counters.Stamp(&message, 0);
    worker->stream->Write(std::move(message));
  }
  void Take(const std::shared_ptr<Worker>& worker, const v1::WorkerMessage& message) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(worker->counters.Take(message, 0).ok());
    if (message.has_formation()) phases_[worker->endpoint] = message.formation().phase();
    if (!message.has_hello()) return;
    worker->endpoint = message.hello().endpoint();
    v1::OrchestratorMessage welcome;
    welcome.mutable_welcome()->set_instance(workers_.size() + 1);
    welcome.mutable_welcome()->set_lease_us(kHourUs);
    welcome.mutable_welcome()->mutable_generation()->set_number(1);
    welcome.mutable_welcome()->mutable_generation()->set_orchestrator(1);
    Write(worker, std::move(welcome));
    workers_[worker->endpoint] = worker;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Worker>> workers_;
  std::map<std::string, int64_t> phases_;
  RpcServer rpc_;
};

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
  out.runs_group_steps = true;
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
  void SetUp() override {
    for (uint64_t i = 0; i < 2; ++i) {
      decoders_.push_back(std::make_unique<Decoder>(network_, orchestrator_.endpoint(), 11 + i));
    }
    scheduler::PrefillConfig config;
    config.membership.identity =
        IdentityOf(prefill_engine_, scheduler::Role::kPrefill, kPrefill, "p:1");
    prefill_.Start(config, [] {});
    ASSERT_TRUE(Await([&] {
      return orchestrator_.Knows("p:1") && orchestrator_.Knows(decoders_[0]->endpoint) &&
             orchestrator_.Knows(decoders_[1]->endpoint);
    }));
  }
  void TearDown() override {
    prefill_.Stop();
    decoders_.clear();
  }

  void Bind() {
    v1::OrchestratorMessage group;
    group.mutable_group()->set_generation(1);
    for (uint64_t i = 0; i < 2; ++i) {
      auto* member = group.mutable_group()->add_members();
      member->set_instance(i + 1);
      member->set_comm_address(decoders_[i]->engine.fabric->Address());
    }
    for (uint32_t i = 0; i < 2; ++i) {
      group.mutable_group()->set_index(i);
      orchestrator_.Send(decoders_[i]->endpoint, group);
    }
    ASSERT_TRUE(Await([&] { return BothTold(v1::FormationTold::PREPARED, /*prepares=*/true); }));
    v1::OrchestratorMessage commit;
    commit.mutable_commit_formation()->set_epoch(formation_);
    orchestrator_.Send(decoders_[0]->endpoint, commit);
    ASSERT_TRUE(Await([&] { return BothTold(v1::FormationTold::BOUND, /*prepares=*/false); }));
  }
  // Until the group's communicators are there, it cannot be prepared: tries anew.
  bool BothTold(int64_t phase, bool prepares) {
    bool both = true, ended = formation_ == 0;
    for (const auto& decoder : decoders_) {
      const int64_t told = orchestrator_.PhaseOf(decoder->endpoint);
      both = both && told == phase && formation_ > 0;
      ended = ended || told == v1::FormationTold::ENDED;
    }
    if (!prepares || !ended) return both;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++formation_;
    v1::OrchestratorMessage prepare;
    prepare.mutable_prepare_formation()->set_epoch(formation_);
    prepare.mutable_prepare_formation()->set_generation(1);
    prepare.mutable_prepare_formation()->set_size(2);
    prepare.mutable_prepare_formation()->set_keep_us(kHourUs);
    for (const auto& decoder : decoders_) orchestrator_.Send(decoder->endpoint, prepare);
    return false;
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
                                 .placed = scheduler::Placed{epoch, {1}, lead.endpoint, {11}}}});
    return Read(serial);
  }
  std::vector<int32_t> Read(uint64_t serial) {
    const auto stub =
        v1::DecodeWorker::NewStub(grpc::CreateChannel(decoders_[0]->endpoint, ClientCredentials()));
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
  Orchestrator orchestrator_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  WorkerEngine prefill_engine_ = EngineOn(network_);
  PrefillShell prefill_{&prefill_engine_, orchestrator_.endpoint(), 1024};
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
