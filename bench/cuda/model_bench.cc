// Decode and prefill of a checkpoint on a GPU, as one line of JSON for each measurement, beside the
// limits of the same minute: a device copy for decode, a large cuBLAS product for prefill.
// bench/cuda/run writes the checkpoints, calls this and the PyTorch peer, and makes the table.
//
//   model_bench --model_dir=DIR [--device=cuda:0] [--batches=1,8,64,256]
//   [--prompts=1024,8192,32768]
//
// --device=cpu runs the same steps on the CPU, without limits: a check of the bench itself.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/cuda/gpu_limits.h"
#include "bench/cuda/step_bench.h"
#include "bench/engine/bench_timer.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/cuda/engine/cuda_engine.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"

ABSL_FLAG(std::string, model_dir, "", "the checkpoint");
ABSL_FLAG(std::string, device, "cuda:0", "cuda:0, or cpu");
ABSL_FLAG(std::vector<std::string>, batches, (std::vector<std::string>{"1", "8", "64", "256"}),
          "sequences that decode together");
ABSL_FLAG(std::vector<std::string>, prompts, (std::vector<std::string>{"1024", "8192", "32768"}),
          "tokens of the prompts");
ABSL_FLAG(int64_t, context, 1024, "tokens of each sequence before it decodes");
ABSL_FLAG(int64_t, chunk_tokens, 8192, "tokens of a step, at most");
ABSL_FLAG(int, rounds, 5, "of steps and limits in turn");
ABSL_FLAG(int, steps, 20, "decode steps a round");

namespace skein::bench {
namespace {

constexpr int kBlockTokens = 16;

// For calls that must not fail: ends the bench.
template <typename T>
T Require(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "model_bench: %s\n", value.status().ToString().c_str());
  std::exit(1);
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "model_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

std::vector<int64_t> Numbers(const std::vector<std::string>& texts) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    if (!text.empty()) numbers.push_back(std::max(1LL, std::atoll(text.c_str())));
  }
  return numbers;
}

struct Plan {
  std::vector<int64_t> batches, prompts;
  int64_t context, chunk_tokens;
  int rounds, steps;

  // That follow a context: a round warms up.
  int64_t decode_steps() const { return int64_t{rounds + 1} * steps; }
  int64_t Blocks() const {
    int64_t most = 1;
    for (const int64_t tokens : prompts) most = std::max(most, BlocksFor(1, tokens, kBlockTokens));
    for (const int64_t batch : batches) {
      most = std::max(most, BlocksFor(batch, context + decode_steps(), kBlockTokens));
    }
    return most;
  }
};

std::unique_ptr<engine::Engine> MakeEngine(const std::string& dir, const std::string& device,
                                           const Plan& plan) {
  engine::ModelEngineOptions options;
  options.device_name = device;
  options.num_blocks = plan.Blocks();
  options.block_tokens = kBlockTokens;
  options.max_batch_tokens = static_cast<int>(plan.chunk_tokens);
  options.warn = [](const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); };
  if (device != "cpu") return Require(engine::MakeCudaEngine(dir, options)).engine;
  return Require(engine::MakeModelEngine(dir, Require(engine::MakeCpuOps({.threads = 1})),
                                         engine::MakeCpuDevice(), options));
}

// Medians of what the rounds gave; the share of a limit is a round's own.
struct Rounds {
  std::vector<double> rates, limits, shares;
  void Add(double rate, double limit) {
    rates.push_back(rate);
    if (limit == 0) return;
    limits.push_back(limit);
    shares.push_back(rate / limit);
  }
  void PrintLimit(const char* name) const {
    if (limits.empty()) return;
    std::printf(", \"%s\": %.6g, \"of_limit\": %.4g", name, Median(limits), Median(shares));
  }
};

void MeasureDecode(StepBench* bench, const StepCosts& costs, GpuLimits* limits, const Plan& plan) {
  for (const int64_t batch : plan.batches) {
    Require(bench->StartDecode(batch, plan.context, plan.decode_steps()));
    int64_t context = plan.context;
    std::vector<double> seconds;
    Rounds rounds;
    for (int round = 0; round <= plan.rounds; ++round) {
      double sum = 0, bytes = 0;
      for (int i = 0; i < plan.steps; ++i) {
        bytes += costs.DecodeBytes(batch, ++context);
        sum += Require(bench->DecodeStep());
      }
      if (round == 0) continue;
      seconds.push_back(sum / plan.steps);
      rounds.Add(bytes / sum, limits == nullptr ? 0 : limits->CopyBytesPerSecond());
    }
    const double step = Median(seconds);
    std::printf(
        "{\"measure\": \"decode\", \"batch\": %lld, \"context\": %lld, \"step_s\": %.6g, "
        "\"tokens_per_s\": %.6g, \"bytes_per_s\": %.6g",
        static_cast<long long>(batch), static_cast<long long>(plan.context), step,
        static_cast<double>(batch) / step, Median(rounds.rates));
    rounds.PrintLimit("copy_bytes_per_s");
    std::printf("}\n");
    std::fflush(stdout);
  }
}

void MeasurePrefill(StepBench* bench, const StepCosts& costs, GpuLimits* limits, const Plan& plan) {
  for (const int64_t tokens : plan.prompts) {
    std::vector<double> seconds;
    Rounds rounds;
    for (int round = 0; round <= plan.rounds; ++round) {
      const double taken = Require(bench->Prefill(tokens));
      if (round == 0) continue;
      seconds.push_back(taken);
      rounds.Add(costs.PrefillFlops(tokens) / taken,
                 limits == nullptr ? 0 : limits->GemmFlopsPerSecond());
    }
    const double taken = Median(seconds);
    std::printf(
        "{\"measure\": \"prefill\", \"tokens\": %lld, \"seconds\": %.6g, "
        "\"tokens_per_s\": %.6g, \"flops_per_s\": %.6g",
        static_cast<long long>(tokens), taken, static_cast<double>(tokens) / taken,
        Median(rounds.rates));
    rounds.PrintLimit("gemm_flops_per_s");
    std::printf("}\n");
    std::fflush(stdout);
  }
}

void Main() {
  const std::string dir = absl::GetFlag(FLAGS_model_dir), device = absl::GetFlag(FLAGS_device);
  const Plan plan = {Numbers(absl::GetFlag(FLAGS_batches)), Numbers(absl::GetFlag(FLAGS_prompts)),
                     absl::GetFlag(FLAGS_context),          absl::GetFlag(FLAGS_chunk_tokens),
                     absl::GetFlag(FLAGS_rounds),           absl::GetFlag(FLAGS_steps)};
  const auto config = Require(
      engine::ParseModelConfig(Require(engine::ReadSmallFile(dir + "/config.json", 1 << 20))));
  const auto engine = MakeEngine(dir, device, plan);
  std::unique_ptr<GpuLimits> limits;
  if (device != "cpu") limits = Require(MakeGpuLimits());
  StepBench bench(engine.get(), plan.chunk_tokens);
  MeasureDecode(&bench, CostsOf(config), limits.get(), plan);
  MeasurePrefill(&bench, CostsOf(config), limits.get(), plan);
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  skein::bench::Main();
  return 0;
}
