// What the host does between two decode steps: the time of a whole step on a device that takes none
// (its operations do nothing), from the core's step to its results, at 64 sequences.
//
//   host_bench [--sequences=64] [--repeats=300]
//
// Rows: context. Columns, CPU time of the one thread: with whole tables in each plan and everything
// checked in each step (as before plans had changes of tables), as it is now, and that with a
// repetition penalty of 1.1, which falls on nearly all ids of the vocabulary (--vocab). Sampling is
// greedy over them: on a GPU it is the device's.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/engine/bench_timer.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/stepping/testing/polled_engine.h"
#include "nlohmann/json.hpp"
#include "proto/common.pb.h"
#include "scheduler/vocabulary/check.h"
#include "services/worker/engine/step_conversion.h"
#include "tools/random_checkpoint/random_checkpoint.h"

ABSL_FLAG(int, sequences, 64, "sequences of a step");
ABSL_FLAG(int, repeats, 300, "steps of each kind; the median counts");
ABSL_FLAG(int, vocab, 64, "ids of the vocabulary; prompts have them at random");

namespace skein {
namespace {

constexpr int kBlockTokens = 16, kOutputTokens = 200;

// A device on which everything takes no time.
class IdleOps : public engine::Ops {
 public:
  void Embed(std::span<const int32_t>, engine::ConstMatrix, engine::Matrix) override {}
  void RmsNorm(engine::ConstMatrix, engine::ConstVector, float, engine::Matrix) override {}
  void AddRmsNorm(engine::Matrix, engine::ConstMatrix, engine::ConstVector, float,
                  engine::Matrix) override {}
  void MatMuls(engine::ConstMatrix, std::span<const engine::Product>) override {}
  void Rope(engine::Matrix, std::span<const int32_t>, const engine::RopeTable&) override {}
  void StoreKv(engine::Matrix, engine::ConstMatrix, std::span<const engine::SequenceSpan>,
               const engine::KvLayerView&, const engine::Rotation&) override {}
  void PagedAttention(engine::ConstMatrix, std::span<const engine::SequenceSpan>,
                      const engine::KvLayerView&, float, engine::Matrix, engine::Matrix) override {}
  void MergeAttention(engine::Matrix, engine::Matrix, engine::ConstMatrix,
                      engine::ConstMatrix) override {}
  void SwiGlu(engine::ConstMatrix, engine::ConstMatrix, engine::Matrix) override {}
  void Add(engine::Matrix, engine::ConstMatrix) override {}
};

std::unique_ptr<engine::Engine> LoadIdle(int64_t blocks) {
  nlohmann::json config = tools::NamedConfig("0.1b");
  config["hidden_size"] = 64;
  config["intermediate_size"] = 128;
  config["num_hidden_layers"] = 16;
  config["num_attention_heads"] = 4;
  config["num_key_value_heads"] = 1;
  config["head_dim"] = 16;
  config["vocab_size"] = absl::GetFlag(FLAGS_vocab);
  config["max_position_embeddings"] = 32768;
  const std::string dir = (std::filesystem::temp_directory_path() / "skein_host_bench").string();
  SKEIN_CHECK(tools::WriteRandomCheckpoint(dir, config, {}).ok());
  engine::ModelEngineOptions options;
  options.num_blocks = blocks;
  options.block_tokens = kBlockTokens;
  options.max_batch_tokens = 256;
  auto engine =
      engine::MakeModelEngine(dir, std::make_unique<IdleOps>(), engine::MakeCpuDevice(), options);
  SKEIN_CHECK_MSG(engine.ok(), engine.status().ToString().c_str());
  std::filesystem::remove_all(dir);
  return *std::move(engine);
}

std::vector<int32_t> RandomIds(int64_t count, std::mt19937* random) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  const auto vocab = static_cast<uint32_t>(absl::GetFlag(FLAGS_vocab));
  for (int32_t& id : ids) id = static_cast<int32_t>((*random)() % vocab);
  return ids;
}

// A core's decode batch: sequences of one context, a block taken every 16 tokens by each in turn.
class Batch {
 public:
  Batch(int sequences, int64_t context, float repetition_penalty = 1.0f) {
    std::mt19937 random(5);
    for (int i = 0; i < sequences; ++i) {
      auto spec = std::make_shared<scheduler::RequestSpec>();
      spec->id = {7, static_cast<uint64_t>(i)};
      spec->prompt = RandomIds(context, &random);
      v1::SamplingParams sampling;
      sampling.set_top_p(1);
      sampling.set_top_logprobs(-1);
      sampling.set_repetition_penalty(repetition_penalty);
      spec->sampling = sampling.SerializeAsString();
      auto output = std::make_shared<const std::vector<int32_t>>(kOutputTokens, 3);
      std::vector<scheduler::BlockId> blocks;
      const int64_t count = (context + kOutputTokens) / kBlockTokens + 1;
      for (int64_t b = 0; b < count; ++b) {
        blocks.push_back({static_cast<int32_t>(i * count + b)});
      }
      step_.sequences.push_back(
          {.id = spec->id,
           .epoch = {5},
           .spec = spec,
           .position = context + kOutputTokens - 1,
           .count = 1,
           .blocks = std::make_shared<const std::vector<scheduler::BlockId>>(std::move(blocks)),
           .sample = true,
           .token_index = kOutputTokens,
           .output = std::move(output)});
    }
  }

  // One sequence in 16 has a new table, as if it had taken a block.
  const scheduler::RunStep& Next() {
    ++step_.step;
    for (size_t i = step_.step % kBlockTokens; i < step_.sequences.size(); i += kBlockTokens) {
      auto grown = std::make_shared<std::vector<scheduler::BlockId>>(*step_.sequences[i].blocks);
      grown->back() = {static_cast<int32_t>(step_.step % 2)};
      step_.sequences[i].blocks = std::move(grown);
    }
    return step_;
  }

 private:
  scheduler::RunStep step_;
};

// With copies of whole tables, checked in each step.
void StepWhole(engine::Engine& engine, const scheduler::RunStep& step,
               const engine::SamplingParams& sampling) {
  std::vector<std::vector<int32_t>> tables;  // copies, which this measures
  std::vector<engine::SequenceStep> steps;
  for (const scheduler::StepSequence& sequence : step.sequences) {
    const std::span<const int32_t> table = NumbersOf(*sequence.blocks);
    tables.emplace_back(table.begin(), table.end());
    engine::SequenceStep one;
    one.tokens = std::span(*sequence.output).last(1);
    one.position = sequence.position;
    one.block_table = tables.back();
    one.sample = true;
    one.sampling = &sampling;
    one.token_index = static_cast<uint64_t>(sequence.token_index);
    one.prompt = sequence.spec->prompt;
    one.output = *sequence.output;
    steps.push_back(one);
  }
  engine::CompletedStep completed;
  completed.status = engine.Step(steps, nullptr, &completed.results);
  SKEIN_CHECK(completed.status.ok() && completed.results.front().status.ok());
}

// CPU time of a step. One kind after the other: whole tables and prompts would put the others out
// of the caches.
double MicrosecondsOf(const std::function<void()>& step) {
  return 1e6 * bench::MedianSecondsInTurn({step}, absl::GetFlag(FLAGS_repeats),
                                          bench::Clock::kThreadCpu)[0];
}

double Whole(engine::Engine* engine, Batch batch) {
  const engine::SamplingParams sampling = {.temperature = 0.0f, .top_logprobs = -1};
  return MicrosecondsOf([&] { StepWhole(*engine, batch.Next(), sampling); });
}

double Changes(engine::Engine* engine, Batch batch) {
  engine::PolledEngine polled(engine);
  services::StepConversion conversion(&polled);
  return MicrosecondsOf([&] {
    const auto planned = conversion.PlanOf(batch.Next());
    polled.Launch(planned.plan);
    const auto done = services::StepConversion::DoneOf(planned, *polled.Poll());
    const absl::Status ended = done.status.ok() ? done.results.front().status : done.status;
    SKEIN_CHECK_MSG(ended.ok(), ended.ToString().c_str());
  });
}

void Measure(int64_t context) {
  const int sequences = absl::GetFlag(FLAGS_sequences);
  const auto engine = LoadIdle(sequences * ((context + kOutputTokens) / kBlockTokens + 1));
  const double whole = Whole(engine.get(), Batch(sequences, context));
  const double changes = Changes(engine.get(), Batch(sequences, context));
  const double penalised = Changes(engine.get(), Batch(sequences, context, 1.1f));
  std::printf("%6lld tokens  whole %7.1f us   changes %7.1f us   with penalty %7.1f us\n",
              static_cast<long long>(context), whole, changes, penalised);
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  for (const int64_t context : {512, 2048, 8192, 16384}) skein::Measure(context);
}
