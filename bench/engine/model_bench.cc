// One measurement of a checkpoint on this machine, as one line of JSON. bench/engine/run calls this
// and makes the table.
//
//   model_bench --measure=gemm|prefill|decode|breakdown|reproducible|sampling --model_dir=DIR
//       --threads=N
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/engine/bench_timer.h"
#include "bench/engine/machine_limits.h"
#include "bench/engine/timed_ops.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/tensor_store.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "scheduler/vocabulary/check.h"

ABSL_FLAG(std::string, measure, "decode",
          "gemm, prefill, decode, breakdown, reproducible or sampling");
ABSL_FLAG(std::string, model_dir, "", "the checkpoint");
ABSL_FLAG(int, threads, 1, "threads of the measurement");
ABSL_FLAG(std::string, isa, "auto", "instructions of the kernels, as the workers' --isa");
ABSL_FLAG(int, prompt_tokens, 512, "tokens of the prefill");
ABSL_FLAG(int, decode_tokens, 48, "tokens decoded, after a prompt of 16");
ABSL_FLAG(int, sequences, 1, "that decode together, of reproducible and sampling");
ABSL_FLAG(int, repeats, 3, "prefills, the best counts; or times that decode_tokens are decoded");
ABSL_FLAG(int, round_tokens, 4, "tokens decoded between two sweeps of as many bytes");
ABSL_FLAG(bool, cpu_clock, false, "one thread's CPU time instead of wall time: a loaded machine");

namespace skein::bench {
namespace {

constexpr int kPromptTokens = 16;  // before a decode

Clock TheClock() {
  const bool cpu = absl::GetFlag(FLAGS_cpu_clock) && absl::GetFlag(FLAGS_threads) == 1;
  return cpu ? Clock::kThreadCpu : Clock::kWall;
}

engine::CpuIsa TheIsa() {
  const std::string name = absl::GetFlag(FLAGS_isa);
  const std::optional<engine::CpuIsa> isa = engine::IsaNamed(name);
  const std::string error = "--isa: no instructions are called '" + name + "'";
  SKEIN_CHECK_MSG(isa.has_value(), error.c_str());
  return *isa;
}

engine::ModelConfig LoadConfig(const std::string& dir) {
  const auto text = engine::ReadSmallFile(dir + "/config.json", 1 << 20);
  SKEIN_CHECK_MSG(text.ok(), text.status().ToString().c_str());
  const auto config = engine::ParseModelConfig(*text);
  SKEIN_CHECK_MSG(config.ok(), config.status().ToString().c_str());
  return *config;
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

// Runs sequences from an empty KV, each of which has an equal part of the blocks.
class Runner {
 public:
  explicit Runner(engine::Engine& engine, int sequences = 1) : engine_(engine), next_(sequences) {
    blocks_.resize(engine.Spec().kv.num_blocks);
    std::iota(blocks_.begin(), blocks_.end(), 0);
    sampling_.temperature = 0.0f;
  }

  // Seconds of one step over `tokens` at `position`, sampling the next token into *next.
  double Step(const std::vector<int32_t>& tokens, int64_t position, int32_t* next,
              size_t sequence = 0) {
    const double seconds = Run({StepOf(sequence, tokens, position)});
    *next = next_[sequence] = results_[0].sampled.token;
    return seconds;
  }
  // Seconds of one step in which every sequence runs the token that it sampled last.
  double StepAll(int64_t position) {
    std::vector<engine::SequenceStep> steps;
    for (size_t i = 0; i < next_.size(); ++i) {
      steps.push_back(StepOf(i, std::span(next_).subspan(i, 1), position));
    }
    const double seconds = Run(steps);
    for (size_t i = 0; i < next_.size(); ++i) next_[i] = results_[i].sampled.token;
    return seconds;
  }
  void SampleBy(const engine::SamplingParams& params) { sampling_ = params; }
  // What the sequences run next.
  std::vector<int32_t>& next() { return next_; }

 private:
  engine::SequenceStep StepOf(size_t sequence, std::span<const int32_t> tokens, int64_t position) {
    const size_t share = blocks_.size() / next_.size();
    engine::SequenceStep step;
    step.tokens = tokens;
    step.position = position;
    step.block_table = std::span(blocks_).subspan(sequence * share, share);
    step.sample = true;
    step.sampling = &sampling_;
    return step;
  }
  double Run(const std::vector<engine::SequenceStep>& steps) {
    const double begin = SecondsNow(TheClock());
    const absl::Status status = engine_.Step(steps, nullptr, &results_);
    const double seconds = SecondsNow(TheClock()) - begin;
    SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str());
    return seconds;
  }

  engine::Engine& engine_;
  std::vector<int32_t> blocks_, next_;
  engine::SamplingParams sampling_;
  std::vector<engine::SequenceResult> results_;
};

std::vector<int32_t> Prompt(int count, int vocab) {
  std::vector<int32_t> tokens = {1};
  for (int i = 1; i < count; ++i) tokens.push_back(3 + (i * 7919) % (vocab - 3));
  return tokens;
}

std::unique_ptr<engine::Engine> LoadEngine(int tokens_max, std::vector<OpCall>* calls,
                                           bool reproducible = false, int sequences = 1) {
  auto ops = engine::MakeCpuOps(
      {.threads = absl::GetFlag(FLAGS_threads), .isa = TheIsa(), .reproducible = reproducible});
  SKEIN_CHECK_MSG(ops.ok(), ops.status().ToString().c_str());
  if (calls != nullptr) ops = MakeTimedOps(*std::move(ops), TheClock(), calls);
  engine::ModelEngineOptions options;
  options.num_blocks = sequences * ((tokens_max + 31) / 16);
  options.max_batch_tokens = std::max(tokens_max, sequences);
  auto made = engine::MakeModelEngine(absl::GetFlag(FLAGS_model_dir), *std::move(ops),
                                      engine::MakeCpuDevice(), options);
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  return *std::move(made);
}

void MeasurePrefill() {
  const int tokens = absl::GetFlag(FLAGS_prompt_tokens);
  const auto model = LoadEngine(tokens, nullptr);
  Runner runner(*model);
  const std::vector<int32_t> prompt = Prompt(tokens, model->Spec().vocab_size);
  int32_t next = 0;
  runner.Step(prompt, 0, &next);  // warms up
  double best = 1e9;
  for (int repeat = 0; repeat < absl::GetFlag(FLAGS_repeats); ++repeat) {
    best = std::min(best, runner.Step(prompt, 0, &next));
  }
  std::printf("{\"prefill_tokens_per_s\": %.6g}\n", tokens / best);
}

// Where the time of some steps went.
struct StepTime {
  double all = 0.0;
  double products = 0.0;
  double attention = 0.0;
  // A step of `seconds`, whose calls are taken from *calls.
  void Add(double seconds, std::vector<OpCall>* calls) {
    all += seconds;
    for (const OpCall& call : *calls) {
      if (call.name.starts_with("MatMul")) products += call.seconds;
      if (call.name.ends_with("Attention")) attention += call.seconds;
    }
    calls->clear();
  }
};

// Of turns with and without reproducible kernels.
struct Costs {
  std::vector<double> ratio;                // of time; 1: costs nothing
  std::vector<double> products, attention;  // their share of what ratio is above 1
  void Add(const StepTime& plain, const StepTime& reproducible) {
    ratio.push_back(reproducible.all / plain.all);
    products.push_back((reproducible.products - plain.products) / plain.all);
    attention.push_back((reproducible.attention - plain.attention) / plain.all);
  }
  void Print(const char* name) const {
    std::printf(
        "\"%s_time_ratio\": %.4g, \"%s_more_in_products\": %.3f, \"%s_more_in_attention\": %.3f",
        name, Median(ratio), name, Median(products), name, Median(attention));
  }
};

// What reproducible kernels cost: the same prefill and as many decode steps behind it, with and
// without, in turns. Medians of the turns' own ratios of time. Several sequences have the same
// prompt, are prefilled one after the other, and then decode together.
void MeasureReproducible() {
  const int tokens = absl::GetFlag(FLAGS_prompt_tokens), steps = absl::GetFlag(FLAGS_round_tokens);
  const int tokens_max = tokens + steps + 1, sequences = absl::GetFlag(FLAGS_sequences);
  std::vector<OpCall> calls[2];
  const auto plain = LoadEngine(tokens_max, &calls[0], false, sequences);
  const auto reproducible = LoadEngine(tokens_max, &calls[1], true, sequences);
  const std::vector<int32_t> prompt = Prompt(tokens, plain->Spec().vocab_size);
  Runner runners[] = {Runner(*plain, sequences), Runner(*reproducible, sequences)};
  Costs prefills, decodes;
  for (int repeat = 0; repeat <= absl::GetFlag(FLAGS_repeats); ++repeat) {
    StepTime prefill[2], decode[2];
    for (int s = 0; s < sequences; ++s) {
      for (int i : {0, 1}) {
        int32_t next = 0;
        prefill[i].Add(runners[i].Step(prompt, 0, &next, static_cast<size_t>(s)), &calls[i]);
      }
    }
    for (int step = 0; step < steps; ++step) {
      runners[1].next() = runners[0].next();
      for (int i : {0, 1}) decode[i].Add(runners[i].StepAll(tokens + step), &calls[i]);
    }
    if (repeat == 0) continue;  // warms up
    prefills.Add(prefill[0], prefill[1]);
    decodes.Add(decode[0], decode[1]);
  }
  std::printf("{");
  prefills.Print("prefill");
  std::printf(", ");
  decodes.Print("decode");
  std::printf("}\n");
}

// What is outside the operations of decode steps, sampling above all, for common parameters: its
// share of the step. Medians of all steps, which take turns.
void MeasureSampling() {
  const std::pair<const char*, engine::SamplingParams> kParams[] = {
      {"greedy", {.temperature = 0.0f}},
      {"temperature", {.temperature = 0.8f}},
      {"top_p", {.temperature = 0.8f, .top_p = 0.95f}},
      {"top_k", {.temperature = 0.8f, .top_k = 50}},
      {"top_k_top_p", {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f}},
      {"logprobs", {.temperature = 0.8f, .top_logprobs = 5}}};
  const int sequences = absl::GetFlag(FLAGS_sequences), steps = absl::GetFlag(FLAGS_decode_tokens);
  std::vector<OpCall> calls;
  const auto model = LoadEngine(kPromptTokens + steps, &calls, false, sequences);
  Runner runner(*model, sequences);
  const std::vector<int32_t> prompt = Prompt(kPromptTokens, model->Spec().vocab_size);
  for (int s = 0; s < sequences; ++s) {
    int32_t next = 0;
    runner.Step(prompt, 0, &next, static_cast<size_t>(s));
  }
  std::vector<double> outside[std::size(kParams)], shares[std::size(kParams)];
  for (int i = 0; i < steps; ++i) {
    const size_t turn = static_cast<size_t>(i) % std::size(kParams);
    runner.SampleBy(kParams[turn].second);
    calls.clear();
    const double seconds = runner.StepAll(kPromptTokens + i);
    double rest = seconds;
    for (const OpCall& call : calls) rest -= call.seconds;
    outside[turn].push_back(rest);
    shares[turn].push_back(rest / seconds);
  }
  std::printf("{\"sequences\": %d, \"vocab_size\": %d", sequences, model->Spec().vocab_size);
  for (size_t i = 0; i < std::size(kParams); ++i) {
    std::printf(", \"%s_outside_ops_us\": %.4g, \"%s_of_step\": %.3f", kParams[i].first,
                1e6 * Median(outside[i]), kParams[i].first, Median(shares[i]));
  }
  std::printf("}\n");
}

// Decodes from a prompt again and again, calling after_step(seconds) after each step.
template <typename AfterStep>
std::vector<int32_t> Decode(Runner* runner, int vocab, const AfterStep& after_step) {
  std::vector<int32_t> sampled;
  for (int repeat = 0; repeat < absl::GetFlag(FLAGS_repeats); ++repeat) {
    int32_t next = 0;
    runner->Step(Prompt(kPromptTokens, vocab), 0, &next);
    sampled = {next};
    for (int i = 0; i < absl::GetFlag(FLAGS_decode_tokens); ++i) {
      const double seconds = runner->Step({next}, kPromptTokens + i, &next);
      sampled.push_back(next);
      after_step(seconds);
    }
  }
  return sampled;
}

// Rounds of a few steps, each followed by a sweep of as many bytes as they read: what decode
// reaches of the memory's speed is the median over rounds, so a noisy neighbour hits both alike.
void MeasureDecode() {
  const std::string dir = absl::GetFlag(FLAGS_model_dir);
  const int threads = absl::GetFlag(FLAGS_threads),
            round_tokens = absl::GetFlag(FLAGS_round_tokens);
  const auto model = LoadEngine(absl::GetFlag(FLAGS_decode_tokens) + kPromptTokens, nullptr);
  const int64_t token_bytes = BytesReadPerToken(dir, LoadConfig(dir).tied_embeddings);
  Runner runner(*model);
  Sweep sweep;
  std::vector<double> step_seconds, sweep_seconds, ratios;  // of a token's bytes
  int tokens = 0;
  double round_seconds = 0.0;
  const auto sampled = Decode(&runner, model->Spec().vocab_size, [&](double seconds) {
    round_seconds += seconds;
    if (++tokens % round_tokens != 0) return;
    const double begin = SecondsNow(TheClock());
    for (int i = 0; i < round_tokens; ++i) sweep.Read(static_cast<size_t>(token_bytes), threads);
    sweep_seconds.push_back((SecondsNow(TheClock()) - begin) / round_tokens);
    step_seconds.push_back(round_seconds / round_tokens);
    ratios.push_back(sweep_seconds.back() / step_seconds.back());
    round_seconds = 0.0;
  });
  std::printf(
      "{\"decode_tokens_per_s\": %.6g, \"sweep_bytes_per_s\": %.6g, \"decode_of_sweep\": %.4g, "
      "\"bytes_per_token\": %lld, \"sampled\": [",
      1.0 / Median(step_seconds), static_cast<double>(token_bytes) / Median(sweep_seconds),
      Median(ratios), static_cast<long long>(token_bytes));
  for (size_t i = 0; i < sampled.size(); ++i) std::printf(i == 0 ? "%d" : ", %d", sampled[i]);
  std::printf("]}\n");
}

// Where a decode step's time goes: each call's median over all steps, summed by name.
void MeasureBreakdown() {
  const int tokens = absl::GetFlag(FLAGS_decode_tokens);
  std::vector<OpCall> calls;
  const auto model = LoadEngine(tokens + kPromptTokens, &calls);
  Runner runner(*model);
  int32_t next = 0;
  runner.Step(Prompt(kPromptTokens, model->Spec().vocab_size), 0, &next);
  std::vector<double> outside;                    // of each step, what no call took
  std::vector<std::vector<double>> call_seconds;  // of each call of a step, over all steps
  for (int i = 0; i < tokens; ++i) {
    calls.clear();
    outside.push_back(runner.Step({next}, kPromptTokens + i, &next));
    call_seconds.resize(calls.size());
    for (size_t c = 0; c < calls.size(); ++c) {
      call_seconds[c].push_back(calls[c].seconds);
      outside.back() -= calls[c].seconds;
    }
  }
  std::map<std::string, OpCall> by_name;
  for (size_t c = 0; c < calls.size(); ++c) {
    OpCall& sum = by_name[calls[c].name];
    sum.bytes += calls[c].bytes;
    sum.seconds += Median(call_seconds[c]);
  }
  by_name["outside ops"].seconds = Median(outside);
  double step = 0.0;
  for (const auto& [name, sum] : by_name) step += sum.seconds;
  for (const auto& [name, sum] : by_name) {
    std::printf("%-20s %8.1f us %5.1f %%", name.c_str(), 1e6 * sum.seconds,
                100.0 * sum.seconds / step);
    std::printf(sum.bytes > 0 ? "  %6.2f GB/s\n" : "\n", 1e-9 * sum.bytes / sum.seconds);
  }
  std::printf("%-20s %8.1f us\n", "step", 1e6 * step);
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const std::string measure = absl::GetFlag(FLAGS_measure);
  if (measure == "gemm") {
    skein::bench::MeasureGemm();
  } else if (measure == "prefill") {
    skein::bench::MeasurePrefill();
  } else if (measure == "decode") {
    skein::bench::MeasureDecode();
  } else if (measure == "breakdown") {
    skein::bench::MeasureBreakdown();
  } else if (measure == "sampling") {
    skein::bench::MeasureSampling();
  } else if (measure == "reproducible") {
    skein::bench::MeasureReproducible();
  } else {
    std::fprintf(
        stderr,
        "--measure=%s: must be gemm, prefill, decode, breakdown, reproducible or sampling\n",
        measure.c_str());
    return 2;
  }
  return 0;
}
