// CPU ranks that share feed-forward weights (SiDP) against ranks with all of them: the time of an
// iteration, one decode step of each rank's own batch, over the batch size, as one line of JSON for
// each. Ranks are threads of one process with an engine and one thread of computing each, all
// decoding at once; the weights are copies in memory, as with --device_memory_gib. Cases take
// turns; figures are medians of the steps of all ranks and turns, in milliseconds. The last line
// names the smallest batch at which WaS is no slower than CaS.
//
//   sharing_bench --model_dir=DIR [--ranks=2] [--batches=1,4,16,64] [--steps=8] [--rounds=3]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/engine/bench_timer.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/sharing/weight_sharing.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "scheduler/vocabulary/check.h"

ABSL_FLAG(std::string, model_dir, "", "the checkpoint");
ABSL_FLAG(int, ranks, 2, "that share; one thread each, and one that serves");
ABSL_FLAG(std::vector<std::string>, batches, std::vector<std::string>({"1", "4", "16", "64"}),
          "sequences of each rank");
ABSL_FLAG(int, steps, 8, "decode steps of a turn");
ABSL_FLAG(int, rounds, 3, "turns of each case; one more warms up");

namespace skein::bench {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kPromptTokens = 8;

std::unique_ptr<engine::Ops> MakeOps() {
  auto ops = engine::MakeCpuOps({.threads = 1});
  SKEIN_CHECK_MSG(ops.ok(), ops.status().ToString().c_str());
  return *std::move(ops);
}

void Check(const absl::Status& status) { SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str()); }

class Rank {
 public:
  explicit Rank(int sequences_max) {
    engine::SharingOptions sharing_options;
    sharing_options.make_serving_ops = MakeOps;
    sharing_options.call_rows_max = std::max(64, sequences_max);
    sharing_options.answer_max = std::chrono::minutes(5);
    sharing = std::make_shared<engine::WeightSharing>(sharing_options);
    engine::ModelEngineOptions options;
    options.block_tokens = kBlockTokens;
    blocks_a_sequence_ =
        (kPromptTokens + absl::GetFlag(FLAGS_steps) + kBlockTokens - 1) / kBlockTokens;
    options.num_blocks = static_cast<int64_t>(sequences_max) * blocks_a_sequence_;
    options.max_batch_tokens = std::max(sequences_max, kPromptTokens);
    options.weights_device = engine::MakeCpuDevice();
    options.sharing = sharing;
    auto made = engine::MakeModelEngine(absl::GetFlag(FLAGS_model_dir), MakeOps(),
                                        engine::MakeCpuDevice(), options);
    SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
    engine_ = *std::move(made);
    blocks_.resize(static_cast<size_t>(options.num_blocks));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    sampling_.temperature = 0.0f;
  }

  // Seconds of each decode step of so many sequences.
  std::vector<double> Decode(int sequences) {
    std::vector<int32_t> next(static_cast<size_t>(sequences));
    const std::vector<int32_t> prompt(kPromptTokens, 5);
    for (size_t i = 0; i < next.size(); ++i) {
      Run({StepOf(i, prompt, 0)});
      next[i] = results_[0].sampled.token;
    }
    std::vector<double> seconds;
    for (int step = 0; step < absl::GetFlag(FLAGS_steps); ++step) {
      std::vector<engine::SequenceStep> all;
      for (size_t i = 0; i < next.size(); ++i) {
        all.push_back(StepOf(i, std::span(next).subspan(i, 1), kPromptTokens + step));
      }
      const double begin = SecondsNow(Clock::kWall);
      Run(all);
      seconds.push_back(SecondsNow(Clock::kWall) - begin);
      for (size_t i = 0; i < next.size(); ++i) next[i] = results_[i].sampled.token;
    }
    return seconds;
  }

  std::shared_ptr<engine::WeightSharing> sharing;

 private:
  engine::SequenceStep StepOf(size_t sequence, std::span<const int32_t> tokens, int64_t position) {
    const auto share = static_cast<size_t>(blocks_a_sequence_);
    engine::SequenceStep step;
    step.tokens = tokens;
    step.position = position;
    step.block_table = std::span(blocks_).subspan(sequence * share, share);
    step.sample = true;
    step.sampling = &sampling_;
    return step;
  }
  void Run(const std::vector<engine::SequenceStep>& steps) {
    Check(engine_->Step(steps, nullptr, &results_));
    for (const engine::SequenceResult& result : results_) Check(result.status);
  }

  std::unique_ptr<engine::Engine> engine_;
  int blocks_a_sequence_ = 1;
  std::vector<int32_t> blocks_;
  engine::SamplingParams sampling_;
  std::vector<engine::SequenceResult> results_;
};

class Ranks {
 public:
  Ranks(int count, int sequences_max) {
    for (int rank = 0; rank < count; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(sequences_max));
    }
  }

  void Enter(engine::SharedMode mode) {
    std::vector<engine::SharingOffer> offers;
    const auto count = static_cast<int>(ranks_.size());
    for (int rank = 0; rank < count; ++rank) {
      auto offer = ranks_[static_cast<size_t>(rank)]->sharing->Offer(rank, count);
      Check(offer.status());
      offers.push_back(*std::move(offer));
    }
    ++epoch_;
    for (const auto& rank : ranks_) Check(rank->sharing->Enter(epoch_, offers, mode));
  }
  void SwitchTo(engine::SharedMode mode) {
    ++epoch_;
    for (const auto& rank : ranks_) Check(rank->sharing->SwitchTo(epoch_, mode));
  }
  void Leave() {
    ++epoch_;
    for (const auto& rank : ranks_) Check(rank->sharing->Leave(epoch_));
  }

  // Appends the seconds of the steps of all ranks, which decode at once.
  void Decode(int sequences, std::vector<double>* seconds) {
    std::vector<std::vector<double>> of_ranks(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] { of_ranks[rank] = ranks_[rank]->Decode(sequences); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& of_rank : of_ranks) {
      seconds->insert(seconds->end(), of_rank.begin(), of_rank.end());
    }
  }

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t epoch_ = 0;
};

void Measure() {
  std::vector<int> batches;
  batches.reserve(absl::GetFlag(FLAGS_batches).size());
  for (const std::string& batch : absl::GetFlag(FLAGS_batches)) batches.push_back(std::stoi(batch));
  Ranks ranks(absl::GetFlag(FLAGS_ranks), *std::max_element(batches.begin(), batches.end()));
  int crossover = 0;
  for (const int batch : batches) {
    std::vector<double> full, was, cas, warm;
    for (int round = 0; round <= absl::GetFlag(FLAGS_rounds); ++round) {
      ranks.Decode(batch, round == 0 ? &warm : &full);
      ranks.Enter(engine::SharedMode::kWeights);
      ranks.Decode(batch, round == 0 ? &warm : &was);
      ranks.SwitchTo(engine::SharedMode::kCompute);
      ranks.Decode(batch, round == 0 ? &warm : &cas);
      ranks.Leave();
    }
    const double was_ms = 1e3 * Median(was), cas_ms = 1e3 * Median(cas);
    if (crossover == 0 && was_ms <= cas_ms) crossover = batch;
    std::printf(
        "{\"ranks\": %d, \"batch\": %d, \"full_ms\": %.2f, \"was_ms\": %.2f, "
        "\"cas_ms\": %.2f}\n",
        absl::GetFlag(FLAGS_ranks), batch, 1e3 * Median(full), was_ms, cas_ms);
    std::fflush(stdout);
  }
  std::printf("{\"ranks\": %d, \"was_from_batch\": %d}\n", absl::GetFlag(FLAGS_ranks), crossover);
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  skein::bench::Measure();
  return 0;
}
