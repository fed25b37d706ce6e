// A bound group of CPU ranks against one rank with as many threads: TPOT of decode steps in TP, and
// the time of a prompt's step in TP and SP, as one line of JSON. Ranks are threads of one process
// with an engine each, and communicators over shared memory as decode-workers have them. Cases take
// turns; every figure is the median of the turns, the ratios that of the turns' own.
//
//   bound_bench --model_dir=DIR [--ranks=2] [--sequences=1] [--prompt_tokens=512]
//       [--decode_tokens=24] [--rounds=5] [--reproducible]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/engine/bench_timer.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/group/group_contexts.h"
#include "engine/model/group/group_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "scheduler/vocabulary/check.h"

ABSL_FLAG(std::string, model_dir, "", "the checkpoint");
ABSL_FLAG(int, ranks, 2, "of the group: 2, 4 or 8; one thread each, as many as the one rank has");
ABSL_FLAG(int, sequences, 1, "that decode together");
ABSL_FLAG(int, prompt_tokens, 512, "tokens of each sequence's prompt");
ABSL_FLAG(int, decode_tokens, 24, "decode steps of a turn");
ABSL_FLAG(int, rounds, 5, "turns of each case; one more warms up");
ABSL_FLAG(bool, reproducible, false, "as the workers' --reproducible on");

namespace skein::bench {
namespace {

std::unique_ptr<engine::GroupEngine> EngineOf(int threads, int sequences, int prompt_tokens) {
  auto ops =
      engine::MakeCpuOps({.threads = threads, .reproducible = absl::GetFlag(FLAGS_reproducible)});
  SKEIN_CHECK_MSG(ops.ok(), ops.status().ToString().c_str());
  engine::ModelEngineOptions options;
  options.block_tokens = 16;
  options.num_blocks =
      sequences * ((prompt_tokens + absl::GetFlag(FLAGS_decode_tokens)) / options.block_tokens + 1);
  options.max_batch_tokens = std::max(prompt_tokens, sequences);
  auto made = engine::GroupEngine::Make(absl::GetFlag(FLAGS_model_dir), *std::move(ops),
                                        engine::MakeCpuDevice(), options, engine::kGroupRanksMax);
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  return *std::move(made);
}

// Sequences from an empty KV on one engine, alone or as a rank of a group.
class Rank {
 public:
  // `context` null: alone.
  Rank(engine::GroupEngine* engine, std::shared_ptr<engine::GroupContext> context, int sequences)
      : engine_(*engine), context_(std::move(context)), next_(static_cast<size_t>(sequences)) {
    sampling_.temperature = 0.0f;
    blocks_.resize(static_cast<size_t>(engine_.Spec().kv.num_blocks));
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  // Seconds of the prompts' steps, one after the other.
  double Prefill(const std::vector<int32_t>& prompt, engine::GroupMode mode) {
    const double begin = SecondsNow(Clock::kWall);
    for (size_t i = 0; i < next_.size(); ++i) {
      Run({StepOf(i, prompt, 0)}, mode);
      next_[i] = results_[0].sampled.token;
    }
    return SecondsNow(Clock::kWall) - begin;
  }
  // Seconds of so many decode steps of all sequences behind a prompt.
  double Decode(int64_t position, int steps, engine::GroupMode mode) {
    const double begin = SecondsNow(Clock::kWall);
    for (int step = 0; step < steps; ++step, ++position) {
      std::vector<engine::SequenceStep> all;
      for (size_t i = 0; i < next_.size(); ++i) {
        all.push_back(StepOf(i, std::span(next_).subspan(i, 1), position));
      }
      Run(all, mode);
      for (size_t i = 0; i < next_.size(); ++i) next_[i] = results_[i].sampled.token;
    }
    return SecondsNow(Clock::kWall) - begin;
  }

 private:
  engine::SequenceStep StepOf(size_t sequence, std::span<const int32_t> tokens, int64_t position) {
    const size_t share = blocks_.size() / next_.size();
    engine::SequenceStep step;
    step.tokens = tokens;
    step.position = position;
    step.block_table = std::span(blocks_).subspan(sequence * share, share);
    step.layout = {context_ == nullptr ? 1 : context_->size()};
    step.sample = true;
    step.sampling = &sampling_;
    return step;
  }
  void Run(const std::vector<engine::SequenceStep>& steps, engine::GroupMode mode) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    const absl::Status status =
        context_ == nullptr
            ? engine_.Step(steps, nullptr, &results_)
            : engine_.StepTogether(context_->Part(mode, until), steps, nullptr, &results_);
    SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str());
    for (const engine::SequenceResult& result : results_) {
      SKEIN_CHECK_MSG(result.status.ok(), result.status.ToString().c_str());
    }
  }

  engine::GroupEngine& engine_;
  const std::shared_ptr<engine::GroupContext> context_;
  std::vector<int32_t> blocks_, next_;
  engine::SamplingParams sampling_;
  std::vector<engine::SequenceResult> results_;
};

// The ranks of a bound group, connected as the decode-workers of a node are.
class Group {
 public:
  Group(int ranks, int sequences, int prompt_tokens) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < ranks; ++rank) {
      auto fabric = engine::MakeHostFabric({.hosts = {.tls = "self,shm"}});
      SKEIN_CHECK_MSG(fabric.ok(), fabric.status().ToString().c_str());
      addresses.push_back((*fabric)->Address());
      fabrics_.push_back(*std::move(fabric));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      engine::PathFabric* const fabric = fabrics_[static_cast<size_t>(rank)].get();
      contexts_.push_back(std::make_unique<engine::GroupContexts>(
          fabric, fabric, engine::GroupContexts::Options{.made = [this](uint64_t, const auto&) {
            ++made_;
            made_.notify_all();
          }}));
      SKEIN_CHECK(contexts_.back()->Make({1, addresses, rank}).ok());
    }
    for (int now = made_; now < ranks; now = made_) made_.wait(now);
    std::vector<int> members(static_cast<size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    for (const auto& contexts : contexts_) {
      auto context = contexts->Take(members);
      SKEIN_CHECK_MSG(context.ok(), context.status().ToString().c_str());
      engines_.push_back(EngineOf(/*threads=*/1, sequences, prompt_tokens));
      ranks_.emplace_back(engines_.back().get(), *std::move(context), sequences);
    }
  }

  // On all ranks at once: what the first one measures.
  double Run(const std::function<double(Rank&)>& measure) {
    std::vector<std::thread> others;
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      others.emplace_back([&, rank] { measure(ranks_[rank]); });
    }
    const double seconds = measure(ranks_[0]);
    for (std::thread& other : others) other.join();
    return seconds;
  }

 private:
  std::atomic<int> made_ = 0;  // contexts
  std::vector<std::unique_ptr<engine::PathFabric>> fabrics_;
  std::vector<std::unique_ptr<engine::GroupContexts>> contexts_;
  std::vector<std::unique_ptr<engine::GroupEngine>> engines_;
  std::vector<Rank> ranks_;
};

// Seconds of the turns of a case alone, and of the same in the group.
struct Turns {
  std::vector<double> alone, bound, ratio;
  void Add(double one, double group) {
    alone.push_back(one);
    bound.push_back(group);
    ratio.push_back(group / one);
  }
  // In ms, of `steps` steps each.
  void Print(const char* name, int steps) const {
    std::printf(", \"%s_alone_ms\": %.5g, \"%s_bound_ms\": %.5g, \"%s_bound_over_alone\": %.4g",
                name, 1e3 * Median(alone) / steps, name, 1e3 * Median(bound) / steps, name,
                Median(ratio));
  }
};

void Measure() {
  const int ranks = absl::GetFlag(FLAGS_ranks), sequences = absl::GetFlag(FLAGS_sequences);
  const int tokens = absl::GetFlag(FLAGS_prompt_tokens), steps = absl::GetFlag(FLAGS_decode_tokens);
  const auto one = EngineOf(/*threads=*/ranks, sequences, tokens);
  Rank alone(one.get(), nullptr, sequences);
  Group group(ranks, sequences, tokens);
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int i = 0; i < tokens; ++i) prompt[static_cast<size_t>(i)] = 3 + i * 79 % 200;
  const engine::GroupMode tp = {1, ranks}, sp = {ranks, 1};
  Turns prompt_tp, prompt_sp, decode;
  for (int round = 0; round <= absl::GetFlag(FLAGS_rounds); ++round) {
    const auto prefill = [&](engine::GroupMode mode) {
      return group.Run([&](Rank& rank) { return rank.Prefill(prompt, mode); });
    };
    const double in_tp = prefill(tp), in_sp = prefill(sp), by_one = alone.Prefill(prompt, {});
    const double tpot = group.Run([&](Rank& rank) { return rank.Decode(tokens, steps, tp); });
    const double tpot_alone = alone.Decode(tokens, steps, {});
    if (round == 0) continue;  // warms up
    prompt_tp.Add(by_one, in_tp);
    prompt_sp.Add(by_one, in_sp);
    decode.Add(tpot_alone, tpot);
  }
  std::printf("{\"ranks\": %d, \"sequences\": %d, \"prompt_tokens\": %d", ranks, sequences, tokens);
  decode.Print("tpot", steps);
  prompt_tp.Print("prompt_tp", sequences);
  prompt_sp.Print("prompt_sp", sequences);
  std::printf("}\n");
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  skein::bench::Measure();
  return 0;
}
