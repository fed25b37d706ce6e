// What it costs to run a chunk of one prompt on several ranks: cache balancing (a chunk whose
// history must first be re-dealt against the same chunk with even history), the ring (the same
// chunk with a ring that sends nothing), and one rank alone. Ranks are threads of this process,
// one compute thread each.
//
//   ring_bench --model_dir=DIR [--ranks=2] [--chunk=2048] [--rounds=7]
//
// Writes a random bf16 Llama of 0.1 B to DIR unless a config.json is there. The cases take turns;
// every figure is the median of the rounds, and so is every ratio.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/engine/bench_timer.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/check.h"
#include "tools/random_checkpoint/random_checkpoint.h"

ABSL_FLAG(std::string, model_dir, "", "checkpoint; written when absent");
ABSL_FLAG(int, ranks, 2, "even; history is with the first half of them before it is re-dealt");
ABSL_FLAG(int, chunk, 2048, "tokens of the chunk");
ABSL_FLAG(int, rounds, 7, "rounds");

namespace skein::bench {
namespace {

using engine::CommDeadline;
using engine::Communicator;

constexpr int kBlockTokens = 16;

// Passes nothing on: what the step would cost if the ring were free.
class FreeRing final : public Communicator {
 public:
  explicit FreeRing(Communicator* inner) : inner_(inner) {}
  int Rank() const override { return inner_->Rank(); }
  int Size() const override { return inner_->Size(); }
  void Tag(uint64_t tag) override { inner_->Tag(tag); }
  absl::Status AllReduce(void* data, int64_t count, engine::DType dtype,
                         CommDeadline deadline) override {
    return inner_->AllReduce(data, count, dtype, deadline);
  }
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    return inner_->AllGather(send, receive, deadline);
  }
  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, engine::DType dtype,
                             CommDeadline deadline) override {
    return inner_->ReduceScatter(send, receive, count, dtype, deadline);
  }
  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override {
    return inner_->AllToAll(send, receive, deadline);
  }
  absl::Status SendRecv(std::span<const std::byte>, int, std::span<std::byte>, int,
                        CommDeadline) override {
    return absl::OkStatus();
  }
  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    return inner_->Broadcast(data, root, deadline);
  }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }

 private:
  Communicator* inner_;
};

CommDeadline Later() { return std::chrono::steady_clock::now() + std::chrono::minutes(5); }

// Of all threads of this process: what other processes on the cores do not lengthen.
double CpuSecondsNow() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Ranks that run one chunk over and over.
class Ranks {
 public:
  Ranks(const std::string& model_dir, int ranks, int64_t chunk, int64_t history_max)
      : chunk_(chunk) {
    engine::ModelEngineOptions options;
    options.num_blocks = (chunk + history_max) / kBlockTokens * 2;
    options.max_batch_tokens = static_cast<int>(chunk);
    std::vector<std::string> addresses;
    for (int r = 0; r < ranks; ++r) {
      auto made = engine::MakeModelEngine(model_dir, *engine::MakeCpuOps({.threads = 1}),
                                          engine::MakeCpuDevice(), options);
      SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
      engines_.push_back(*std::move(made));
      for (const engine::KvRegion& region : engines_.back()->KvRegions()) {
        auto* values = static_cast<uint16_t*>(region.base);  // bf16 near 1
        for (int64_t i = 0; i < region.bytes / 2; ++i) {
          values[i] = static_cast<uint16_t>(0x3f80 + i % 61 - i % 7 * 0x80);
        }
      }
      fabrics_.push_back(hub_.MakeFabric());
      addresses.push_back(fabrics_.back()->Address());
    }
    for (auto* groups : {&comm_, &moves_}) {
      for (int r = 0; r < ranks; ++r) {
        auto group = fabrics_[static_cast<size_t>(r)]->MakeGroup(
            {1, groups == &comm_ ? uint64_t{1} : uint64_t{2}}, addresses, r);
        SKEIN_CHECK(group.ok());
        groups->push_back(*std::move(group));
      }
    }
    for (auto& group : comm_) free_.push_back(std::make_unique<FreeRing>(group.get()));
    ids_.resize(static_cast<size_t>(chunk));
    for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<int32_t>(i * 37 % 32000);
  }

  int64_t size() const { return static_cast<int64_t>(engines_.size()); }

  enum class Kind { kEven, kMoved, kFreeRing };

  // One step of all ranks, in zigzag; history is even when it attends.
  void Step(int64_t history, Kind kind) {
    std::vector<engine::RingStep> steps(engines_.size());
    for (size_t r = 0; r < steps.size(); ++r) steps[r] = StepOf(r, history, kind);
    OnEach([&](size_t r) { RunOne(r, steps[r]); });
  }

  // The whole chunk at rank 0.
  void Alone(int64_t history) {
    engine::RingStep step;
    step.shares = {{history, {{history, chunk_}}}};
    step.history_blocks = Blocks(0, history / kBlockTokens);
    step.deadline = Later();
    RunOne(0, step);
  }

  // The bytes of one step's ring, and nothing else. A step that wants no logits has none in its
  // last layer.
  void RingAlone(int64_t history) {
    const auto& kv = engines_[0]->Spec().kv;
    const int64_t bytes = (history + chunk_) / size() / kBlockTokens * kv.BlockBytes();
    OnEach([&](size_t r) {
      std::vector<std::byte> out(static_cast<size_t>(bytes)), in(out.size());
      const int ranks = static_cast<int>(size()), rank = static_cast<int>(r);
      for (int64_t hop = 0; hop < (kv.num_layers - 1) * (size() - 1); ++hop) {
        SKEIN_CHECK(comm_[r]
                        ->SendRecv(out, (rank + 1) % ranks, in, (rank + ranks - 1) % ranks, Later())
                        .ok());
      }
    });
  }

 private:
  static std::vector<BlockId> Blocks(int64_t first, int64_t count) {
    std::vector<BlockId> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back({static_cast<int32_t>(first + i)});
    return ids;
  }

  engine::RingStep StepOf(size_t r, int64_t history, Kind kind) {
    const auto ranks = static_cast<size_t>(size());
    const int64_t shard = chunk_ / (2 * size());
    const int64_t each = history / kBlockTokens / size();
    engine::RingStep step;
    step.comm =
        kind == Kind::kFreeRing ? static_cast<Communicator*>(free_[r].get()) : comm_[r].get();
    for (size_t i = 0; i < ranks; ++i) {
      const auto rank = static_cast<int64_t>(i);
      step.shares.push_back(
          {each * kBlockTokens,
           {{history + rank * shard, shard}, {history + (2 * size() - 1 - rank) * shard, shard}},
           {},
           /*wants_logits=*/false});
    }
    step.history_blocks = Blocks(0, each);
    step.deadline = Later();
    if (kind != Kind::kMoved) return step;
    step.moves = moves_[r].get();
    step.moved_blocks_max = each;
    step.send.resize(ranks);
    step.receive.resize(ranks);
    const size_t half = ranks / 2;
    if (r < half) {
      step.send[r + half] = Blocks(each, each);
    } else {
      step.receive[r - half] = step.history_blocks;
    }
    return step;
  }

  void RunOne(size_t r, const engine::RingStep& ring) {
    const auto& kv = engines_[r]->Spec().kv;
    const int64_t tokens = ring.comm == nullptr ? chunk_ : chunk_ / size();
    const std::vector<BlockId> table =
        Blocks(kv.num_blocks - chunk_ / kBlockTokens, tokens / kBlockTokens);
    engine::SequenceStep step;
    step.tokens = std::span(ids_).first(static_cast<size_t>(tokens));
    step.block_table = NumbersOf(table);
    step.ring = &ring;
    std::vector<engine::SequenceResult> results;
    const absl::Status status = engines_[r]->Step({&step, 1}, nullptr, &results);
    SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str());
  }

  void OnEach(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < engines_.size(); ++r) threads.emplace_back([&, r] { body(r); });
    for (std::thread& thread : threads) thread.join();
  }

  int64_t chunk_;
  engine::LocalHub hub_;
  std::vector<std::unique_ptr<engine::Fabric>> fabrics_;
  std::vector<std::unique_ptr<Communicator>> comm_, moves_;
  std::vector<std::unique_ptr<FreeRing>> free_;
  std::vector<std::unique_ptr<engine::Engine>> engines_;
  std::vector<int32_t> ids_;
};

void WriteModel(const std::string& dir) {
  if (std::filesystem::exists(dir + "/config.json")) return;
  nlohmann::json config = tools::NamedConfig("0.1b");
  config["max_position_embeddings"] = 65536;
  SKEIN_CHECK(tools::WriteRandomCheckpoint(dir, config, {}).ok());
}

void Measure() {
  const int64_t chunk = absl::GetFlag(FLAGS_chunk);
  WriteModel(absl::GetFlag(FLAGS_model_dir));
  Ranks ranks(absl::GetFlag(FLAGS_model_dir), absl::GetFlag(FLAGS_ranks), chunk, 2 * chunk);
  SKEIN_CHECK(chunk % (4 * ranks.size() * kBlockTokens) == 0);
  std::printf(
      "| history | even ms | re-dealt | in CPU time | ring that sends nothing | ring's bytes "
      "alone | "
      "one rank ms | speed-up |\n|---|---|---|---|---|---|---|---|\n");
  for (const int64_t history : {chunk / 4, chunk / 2, chunk, 2 * chunk}) {
    using Kind = Ranks::Kind;
    const std::vector<std::function<void()>> bodies = {
        [&] { ranks.Step(history, Kind::kEven); }, [&] { ranks.Step(history, Kind::kMoved); },
        [&] { ranks.Step(history, Kind::kFreeRing); }, [&] { ranks.RingAlone(history); },
        [&] { ranks.Alone(history); }};
    std::vector<std::vector<double>> ms(bodies.size());
    std::vector<double> moved, moved_cpu, free_ring, ring_alone, speedup;
    for (const auto& body : bodies) body();
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      std::vector<double> now, cpu;
      for (const auto& body : bodies) {
        const double begin = SecondsNow(Clock::kWall), cpu_begin = CpuSecondsNow();
        body();
        now.push_back(1e3 * (SecondsNow(Clock::kWall) - begin));
        cpu.push_back(CpuSecondsNow() - cpu_begin);
      }
      for (size_t i = 0; i < now.size(); ++i) ms[i].push_back(now[i]);
      moved.push_back(100 * (now[1] / now[0] - 1));
      moved_cpu.push_back(100 * (cpu[1] / cpu[0] - 1));
      free_ring.push_back(100 * (now[2] / now[0] - 1));
      ring_alone.push_back(100 * now[3] / now[0]);
      speedup.push_back(now[4] / now[0]);
    }
    std::printf("| %lld | %.0f | %+.1f %% | %+.1f %% | %+.1f %% | %.1f %% | %.0f | %.2f |\n",
                static_cast<long long>(history), Median(ms[0]), Median(moved), Median(moved_cpu),
                Median(free_ring), Median(ring_alone), Median(ms[4]), Median(speedup));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_model_dir).empty()) {
    std::fprintf(stderr, "--model_dir is required\n");
    return 2;
  }
  skein::bench::Measure();
  return 0;
}
