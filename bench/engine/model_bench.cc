// One measurement of a checkpoint on this machine, as one line of JSON. bench/engine/run calls this
// and makes the table.
//
//   model_bench --measure=sweep|gemm|engine --model_dir=DIR --threads=N
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/engine/machine_limits.h"
#include "engine/base/check.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/tensor_store.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"

ABSL_FLAG(std::string, measure, "engine", "sweep, gemm or engine");
ABSL_FLAG(std::string, model_dir, "", "the checkpoint");
ABSL_FLAG(int, threads, 1, "threads of the measurement");
ABSL_FLAG(int, prompt_tokens, 512, "tokens of the prefill");
ABSL_FLAG(int, decode_tokens, 48, "tokens decoded, after a prompt of 16");
ABSL_FLAG(int, repeats, 3, "prefills and decodes; the best counts");

namespace skein::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

engine::ModelConfig LoadConfig(const std::string& dir) {
  const auto text = engine::ReadSmallFile(dir + "/config.json", 1 << 20);
  SKEIN_CHECK_MSG(text.ok(), text.status().ToString().c_str());
  const auto config = engine::ParseModelConfig(*text);
  SKEIN_CHECK_MSG(config.ok(), config.status().ToString().c_str());
  return *config;
}

void MeasureSweep() {
  std::printf("{\"sweep_bytes_per_s\": %.6g}\n", SweepBytesPerSecond(absl::GetFlag(FLAGS_threads)));
}

// The products of one layer with all rows; the rate of the whole prefill if it were only these.
void MeasureGemm() {
  const engine::ModelConfig config = LoadConfig(absl::GetFlag(FLAGS_model_dir));
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const std::vector<GemmShape> layer = {{config.QueryColumns(), hidden},
                                        {config.KvColumns(), hidden},
                                        {config.KvColumns(), hidden},
                                        {hidden, config.QueryColumns()},
                                        {inner, hidden},
                                        {inner, hidden},
                                        {hidden, inner}};
  const int64_t rows = absl::GetFlag(FLAGS_prompt_tokens);
  double flops = 0.0;
  for (const GemmShape& shape : layer) {
    flops += 2.0 * static_cast<double>(rows * shape.columns * shape.depth);
  }
  const double seconds = GemmSeconds(layer, rows, absl::GetFlag(FLAGS_threads));
  std::printf("{\"gemm_flops_per_s\": %.6g, \"gemm_tokens_per_s\": %.6g}\n", flops / seconds,
              static_cast<double>(rows) / (seconds * config.num_layers));
}

// Bytes of weights that a decode step must read: all but the embedding (one row of it).
int64_t BytesReadPerToken(const std::string& dir, bool tied) {
  const auto tensors = engine::TensorStore::Open(dir);
  SKEIN_CHECK_MSG(tensors.ok(), tensors.status().ToString().c_str());
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors->tensors()) {
    if (tied || name != "model.embed_tokens.weight") bytes += static_cast<int64_t>(tensor.bytes);
  }
  return bytes;
}

// Runs one sequence from an empty KV.
class Runner {
 public:
  explicit Runner(engine::Engine& engine) : engine_(engine) {
    blocks_.resize(engine.Spec().kv.num_blocks);
    std::iota(blocks_.begin(), blocks_.end(), 0);
    greedy_.temperature = 0.0f;
  }

  // Seconds of one step over `tokens` at `position`, drawing the next token into *next.
  double Step(const std::vector<int32_t>& tokens, int64_t position, int32_t* next) {
    engine::SequenceStep step;
    step.tokens = tokens;
    step.position = position;
    step.block_table = blocks_;
    step.sample = true;
    step.sampling = &greedy_;
    const Clock::time_point start = Clock::now();
    const absl::Status status = engine_.Step({&step, 1}, nullptr, &results_);
    const double seconds = SecondsSince(start);
    SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str());
    *next = results_[0].sampled.token;
    return seconds;
  }

 private:
  engine::Engine& engine_;
  std::vector<int32_t> blocks_;
  engine::SamplingParams greedy_;
  std::vector<engine::SequenceResult> results_;
};

std::vector<int32_t> Prompt(int count, int vocab) {
  std::vector<int32_t> tokens = {1};
  for (int i = 1; i < count; ++i) tokens.push_back(3 + (i * 7919) % (vocab - 3));
  return tokens;
}

void MeasureEngine() {
  const std::string dir = absl::GetFlag(FLAGS_model_dir);
  const int prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);
  const int decode_tokens = absl::GetFlag(FLAGS_decode_tokens);
  auto ops =
      engine::MakeCpuOps({.threads = absl::GetFlag(FLAGS_threads), .isa = engine::CpuIsa::kAuto});
  SKEIN_CHECK_MSG(ops.ok(), ops.status().ToString().c_str());
  engine::ModelEngineOptions options;
  options.num_blocks = (std::max(prompt_tokens, decode_tokens + 16) + 31) / 16;
  options.max_batch_tokens = prompt_tokens;
  const auto made = engine::MakeModelEngine(dir, *std::move(ops), engine::MakeCpuDevice(), options);
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  engine::Engine& model = **made;
  Runner runner(model);
  const int vocab = model.Spec().vocab_size;

  int32_t next = 0;
  double prefill_seconds = 1e9, decode_seconds = 1e9;
  std::vector<int32_t> drawn;
  for (int repeat = 0; repeat <= absl::GetFlag(FLAGS_repeats); ++repeat) {  // the first warms up
    prefill_seconds =
        std::min(prefill_seconds, runner.Step(Prompt(prompt_tokens, vocab), 0, &next));
    runner.Step(Prompt(16, vocab), 0, &next);
    drawn = {next};
    double seconds = 0.0;
    for (int i = 0; i < decode_tokens; ++i) {
      seconds += runner.Step({next}, 16 + i, &next);
      drawn.push_back(next);
    }
    decode_seconds = std::min(decode_seconds, seconds);
  }
  const bool tied = LoadConfig(dir).tied_embeddings;
  std::printf(
      "{\"parameters\": %lld, \"prefill_tokens_per_s\": %.6g, \"decode_tokens_per_s\": %.6g, "
      "\"bytes_per_token\": %lld, \"drawn\": [",
      static_cast<long long>(model.Spec().num_parameters), prompt_tokens / prefill_seconds,
      decode_tokens / decode_seconds, static_cast<long long>(BytesReadPerToken(dir, tied)));
  for (size_t i = 0; i < drawn.size(); ++i) std::printf(i == 0 ? "%d" : ", %d", drawn[i]);
  std::printf("]}\n");
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const std::string measure = absl::GetFlag(FLAGS_measure);
  if (measure == "sweep") {
    skein::bench::MeasureSweep();
  } else if (measure == "gemm") {
    skein::bench::MeasureGemm();
  } else if (measure == "engine") {
    skein::bench::MeasureEngine();
  } else {
    std::fprintf(stderr, "--measure=%s: must be sweep, gemm or engine\n", measure.c_str());
    return 2;
  }
  return 0;
}
