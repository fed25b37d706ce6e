// Decode-workers with models on CPUs that are bound and released, in one process: real shells,
// engines, communicators and feeds, an orchestrator that says when. Sequences that were preempted
// run in the group. Whatever the formation did, every token is the one of an instance alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "nlohmann/json.hpp"
#include "services/worker/engine/sampling_codec.h"
#include "services/worker/testing/emulated_decode_worker.h"
#include "services/worker/testing/formation_orchestrator.h"
#include "services/worker/testing/watched_engine.h"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::services {
namespace {

using Phase = scheduler::FormationTold::Phase;
using scheduler::SpecPtr;
using scheduler::Switch;

constexpr int kVocabulary = 203;
constexpr int kBlockTokens = 4;
constexpr int kBlocks = 40;  // a request needs up to 34: two do not fit one instance
constexpr int64_t kShiftTokens = 6;
constexpr scheduler::TimeUs kKeepUs = 60 * scheduler::kSecondUs;

std::string ModelDir() {
  const std::string dir = ::testing::TempDir() + "/bound_workers";
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 72},
                                 {"intermediate_size", 172},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 12},
                                 {"vocab_size", kVocabulary},
                                 {"max_position_embeddings", 1024}};
  const absl::Status written = tools::WriteRandomCheckpoint(
      dir, config, {.dtype = engine::DType::kBF16, .seed = 9, .shards = 1});
  SKEIN_CHECK_MSG(written.ok(), written.ToString().c_str());
  return dir;
}

// Every other one is greedy.
SpecPtr RequestOf(uint64_t serial, int64_t max_tokens) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {1, serial};
  spec->model = "m";
  for (uint64_t i = 0; i < 9 + serial * 5 % 8; ++i) {
    spec->prompt.push_back(static_cast<int32_t>((serial * 31 + i * 7) % kVocabulary));
  }
  spec->max_tokens = max_tokens;
  v1::SamplingParams sampling;
  sampling.set_temperature(serial % 2 == 0 ? 0 : 0.9F);
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_seed(serial);
  sampling.set_top_logprobs(-1);
  spec->sampling = sampling.SerializeAsString();
  return spec;
}

// An instance alone: the tokens to expect, and the KV of a prompt as a prefill instance makes it.
class Alone {
 public:
  explicit Alone(const std::string& dir) {
    engine::ModelEngineOptions options;
    options.num_blocks = 64;
    options.block_tokens = kBlockTokens;
    engine_ = engine::MakeModelEngine(
                  dir, engine::MakeCpuOps({.threads = 1, .reproducible = true}).value(),
                  engine::MakeCpuDevice(), options)
                  .value();
    table_.resize(64);
    std::iota(table_.begin(), table_.end(), 0);
  }

  // Computes the prompt, into the blocks 0, 1, …
  int32_t FirstToken(const scheduler::RequestSpec& spec) { return Run(spec, spec.prompt, {}); }
  std::vector<int32_t> TokensOf(const scheduler::RequestSpec& spec) {
    std::vector<int32_t> output = {FirstToken(spec)};
    while (static_cast<int64_t>(output.size()) < spec.max_tokens) {
      output.push_back(Run(spec, {output.back()}, output));
    }
    return output;
  }
  // What a handoff does.
  void CopyKv(const std::vector<int32_t>& blocks, const engine::StepEngine& to) const {
    const auto bytes = static_cast<size_t>(engine_->Spec().kv.BlockBytes());
    for (size_t layer = 0; layer < to.KvRegions().size(); ++layer) {
      for (size_t i = 0; i < blocks.size(); ++i) {
        std::memcpy(static_cast<std::byte*>(to.KvRegions()[layer].base) +
                        static_cast<size_t>(blocks[i]) * bytes,
                    static_cast<std::byte*>(engine_->KvRegions()[layer].base) + i * bytes, bytes);
      }
    }
  }
  const engine::EngineSpec& Spec() const { return engine_->Spec(); }

 private:
  int32_t Run(const scheduler::RequestSpec& spec, const std::vector<int32_t>& tokens,
              const std::vector<int32_t>& output) {
    const engine::SamplingParams sampling = SamplingFrom(spec);
    engine::SequenceStep step;
    step.tokens = tokens;
    step.position =
        output.empty() ? 0 : static_cast<int64_t>(spec.prompt.size() + output.size()) - 1;
    step.block_table = table_;
    step.sample = true;
    step.sampling = &sampling;
    step.token_index = output.size();
    step.prompt = spec.prompt;
    step.output = output;
    std::vector<engine::SequenceResult> results;
    const absl::Status ran = engine_->Step({&step, 1}, nullptr, &results);
    SKEIN_CHECK_MSG(ran.ok() && results[0].status.ok(), ran.ToString().c_str());
    return results[0].sampled.token;
  }

  std::unique_ptr<engine::Engine> engine_;
  std::vector<int32_t> table_;
};

WorkerEngine EngineOf(const std::string& dir) {
  constexpr double kBlockBytes = 2 * 4 * 12 * kBlockTokens * 2 * 2;  // in both layers
  WorkerOptions options;
  options.model = dir;
  options.device = "cpu";
  options.reproducible = "on";
  options.block_tokens = kBlockTokens;
  options.kv_gib = (kBlocks + 0.5) * kBlockBytes / (1 << 30);
  auto made = MakeWorkerEngine(options, scheduler::Role::kDecode);
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  return *std::move(made);
}

// A decode-worker with the requests that run there.
class Worker {
 public:
  Worker(const std::string& dir, uint64_t index, const std::string& orchestrator) {
    WorkerEngine engine = EngineOf(dir);
    auto watched = std::make_unique<testing::WatchedEngine>(std::move(engine.engine));
    watched_ = watched.get();
    engine.engine = std::move(watched);
    scheduler::DecodeConfig config;
    config.membership.identity.model = "m";
    config.membership.identity.endpoint = absl::StrCat("127.0.0.1:", 1 + index);
    config.membership.identity.incarnation = {index + 1};
    config.membership.identity.comm_address = engine.fabric->Address();
    worker_ = std::make_unique<testing::EmulatedDecodeWorker>(std::move(engine), config, 1024,
                                                              orchestrator);
  }

  // Brings it here with its KV, when there is room.
  void Start(const SpecPtr& spec, Alone* prefill) {
    const int32_t first = prefill->FirstToken(*spec);
    worker_->shell().Post(scheduler::AnnounceCalled{{spec, {1}, {{1}}}, {}});
    scheduler::OpenTransferRequest open;
    open.id = spec->id;
    open.epoch = {1};
    open.prefill = {1};
    open.incarnation = {1};
    open.shape = ShapeOf(watched_->Spec());
    v1::OpenTransferResponse opened;
    while (Call(&v1::DecodeWorker::Stub::OpenTransfer, ToProto(open), &opened).error_code() ==
           grpc::StatusCode::RESOURCE_EXHAUSTED) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    prefill->CopyKv({opened.blocks().begin(), opened.blocks().end()}, *watched_);
    scheduler::CommitRequest commit;
    commit.id = spec->id;
    commit.epoch = {1};
    commit.prefill = {1};
    commit.token = first;
    const engine::KvSpec& kv = watched_->Spec().kv;
    commit.bytes_per_layer.assign(static_cast<size_t>(kv.num_layers),
                                  opened.blocks_size() * kv.BlockBytes());
    v1::CommitResponse committed;
    const grpc::Status status = Call(&v1::DecodeWorker::Stub::Commit, ToProto(commit), &committed);
    EXPECT_TRUE(status.ok()) << status.error_message();
    specs_.push_back(spec);
  }

  // Reads the answers of all that were started, to their ends.
  void ExpectTokensOfOneAlone(Alone* alone) {
    std::map<uint64_t, std::vector<int32_t>> answers = ReadAll();
    for (const SpecPtr& spec : std::exchange(specs_, {})) {
      EXPECT_EQ(answers[spec->id.serial], alone->TokensOf(*spec)) << "request " << spec->id.serial;
    }
  }

  testing::WatchedEngine& engine() { return *watched_; }
  DecodeShell& shell() { return worker_->shell(); }
  scheduler::DecodeSnapshot Look() { return shell().Look()->snapshot; }
  // Of steps together, without own ones.
  std::vector<StepTotals> GroupSteps() {
    std::vector<StepTotals> totals = shell().StepTotalsByMode();
    std::erase_if(totals, [](const StepTotals& one) { return one.mode == "own"; });
    return totals;
  }

 private:
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::DecodeWorker::Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (worker_->stub()->*method)(&context, request, response);
  }
  std::map<uint64_t, std::vector<int32_t>> ReadAll() {
    grpc::ClientContext context;
    const auto stream = worker_->stub()->StreamTokens(&context);
    v1::TokenStreamRequest request;
    for (const SpecPtr& spec : specs_) {
      auto* attach = request.add_attach();
      *attach->mutable_id() = ToProto(spec->id);
      attach->set_epoch(1);
      attach->set_credit(1 << 20);
    }
    if (!specs_.empty()) stream->Write(request);
    std::map<uint64_t, std::vector<int32_t>> answers;
    size_t ended = 0;
    for (v1::TokenBatch batch; ended < specs_.size() && stream->Read(&batch);) {
      for (const v1::TokenBatch::Sequence& one : batch.sequences()) {
        std::vector<int32_t>& answer = answers[one.id().serial()];
        EXPECT_EQ(one.first_index(), answer.size());
        answer.insert(answer.end(), one.tokens().begin(), one.tokens().end());
        if (!one.has_finished()) continue;
        ++ended;
        EXPECT_EQ(one.finished().reason(), v1::FINISH_REASON_LENGTH) << one.DebugString();
      }
    }
    context.TryCancel();
    return answers;
  }

  std::unique_ptr<testing::EmulatedDecodeWorker> worker_;
  testing::WatchedEngine* watched_ = nullptr;
  std::vector<SpecPtr> specs_;
};

class BoundWorkers : public ::testing::TestWithParam<int> {
 protected:
  BoundWorkers() : dir_(ModelDir()), alone_(dir_) {
    for (int i = 0; i < size(); ++i) {
      workers_.push_back(std::make_unique<Worker>(dir_, i, orchestrator_.address()));
    }
    orchestrator_.OrderGroups(1, workers_.size());
    for (auto& worker : workers_) {
      AwaitThat([&] { return !worker->shell().GroupWays().empty(); });
    }
  }

  static void AwaitThat(const std::function<bool()>& so) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!so()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  int size() const { return GetParam(); }
  Worker& lead() { return *workers_[0]; }

  // All of them, under a new epoch.
  void Bind() {
    ++epoch_;
    for (int i = 0; i < size(); ++i) {
      orchestrator_.Tell(i,
                         scheduler::PrepareFormation{epoch_, 1, 0, size(), kKeepUs, kShiftTokens});
    }
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kPrepared);
    orchestrator_.Tell(0, scheduler::CommitFormation{epoch_});
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kBound);
  }
  void Release(Switch how) {
    orchestrator_.Tell(0, scheduler::EndFormation{epoch_, how, absl::CancelledError("released")});
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kEnded);
  }
  void Expect(uint64_t worker, Phase phase) {
    const scheduler::FormationTold told = orchestrator_.Await(worker, epoch_, phase);
    EXPECT_EQ(told.phase, phase) << "worker " << worker << ": " << told.why;
  }
  // Each request needs most of the lead's pool. The last ones to come are preempted.
  void StartAtLead(int requests) {
    for (int i = 0; i < requests; ++i) lead().Start(RequestOf(++serial_, 120), &alone_);
  }

  const std::string dir_;
  Alone alone_;
  testing::FormationOrchestrator orchestrator_;
  std::vector<std::unique_ptr<Worker>> workers_;
  uint64_t epoch_ = 0;
  uint64_t serial_ = 0;
};

// Pinned at its size: it is never a formation in name only.
TEST_P(BoundWorkers, PinnedEachMemberRunsTheStepsMovesBytesAndHoldsItsPartOfTheBlocks) {
  Bind();
  lead().engine().Hold();
  StartAtLead(5);
  lead().engine().HoldAtGroupStep(/*sequences=*/2);
  for (int i = 1; i < size(); ++i) workers_[i]->Start(RequestOf(++serial_, 60), &alone_);
  lead().engine().Go();

  // Every member is in the step that the lead's engine holds.
  const testing::WatchedEngine::GroupStepKv kv = lead().engine().AwaitHeld();
  const int64_t held = lead().Look().group_blocks;
  EXPECT_GE(kv.blocks * size(), kv.blocks_alone);
  EXPECT_LE(kv.blocks, kv.blocks_alone / size() + kv.sequences);
  EXPECT_GE(held, kv.blocks);
  for (const auto& worker : workers_) {
    AwaitThat([&] { return worker->Look().group_blocks == held; });
  }
  lead().engine().Go();

  for (const auto& worker : workers_) worker->ExpectTokensOfOneAlone(&alone_);
  Release(Switch::kSequential);
  const std::vector<StepTotals> steps = lead().GroupSteps();
  ASSERT_EQ(steps.size(), 2u) << "of TP, and of SP above the ordered number of tokens";
  for (const StepTotals& one : steps) {
    EXPECT_TRUE(one.mode == "tp" || one.mode == "sp") << one.mode;
    EXPECT_EQ(one.ranks, size());
    EXPECT_GT(one.steps, 0u);
  }
  for (const auto& worker : workers_) {
    EXPECT_EQ(worker->GroupSteps(), steps);
    EXPECT_GT(worker->shell().StepTotalsByMode()[0].steps, 0u) << "own ones, in turn";
    const std::vector<engine::CommTotals> ways = worker->shell().GroupWays();
    const auto way = std::find_if(ways.begin(), ways.end(),
                                  [this](const auto& one) { return one.ranks == size(); });
    ASSERT_NE(way, ways.end());
    EXPECT_GT(way->bytes, 0u);
    EXPECT_TRUE(worker->shell().CheckInvariants().ok());
    EXPECT_EQ(worker->Look().blocks.free, kBlocks);
  }
}

// The sequences of the group go back to the lead and come again, or end before it is released.
TEST_P(BoundWorkers, SwitchesInFlightChangeNoToken) {
  uint64_t steps_before = 0;
  const auto group_steps = [this] {
    uint64_t steps = 0;
    for (const StepTotals& one : lead().GroupSteps()) steps += one.steps;
    return steps;
  };
  for (const Switch how : {Switch::kHard, Switch::kSequential, Switch::kHard}) {
    StartAtLead(3);
    Bind();
    AwaitThat([&] { return group_steps() >= steps_before + 10; });
    Release(how);
    steps_before = group_steps();
  }
  for (const auto& worker : workers_) {
    worker->ExpectTokensOfOneAlone(&alone_);
    EXPECT_TRUE(worker->shell().CheckInvariants().ok());
    AwaitThat([&] { return worker->Look().blocks.free == kBlocks; });
  }
}

INSTANTIATE_TEST_SUITE_P(OfSize, BoundWorkers, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::services
