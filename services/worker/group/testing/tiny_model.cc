#include "services/worker/group/testing/tiny_model.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu_device.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "nlohmann/json.hpp"
#include "proto/common.pb.h"
#include "scheduler/vocabulary/check.h"
#include "services/worker/engine/sampling_codec.h"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::services::testing {
namespace {

constexpr int kLayers = 2;
constexpr int kHeadDim = 12;
constexpr int kMaxPositions = 1024;
constexpr int kEmulatedKvHeads = 8;
constexpr int kEmulatedHeadDim = 4;
constexpr int kAloneBlocks = 64;

engine::EmulatedOptions EmulatedAlone() {
  return {.kv = {{.num_layers = kLayers,
                  .kv_heads = kEmulatedKvHeads,
                  .head_dim = kEmulatedHeadDim,
                  .block_tokens = kTinyBlockTokens,
                  .dtype = engine::DType::kBF16},
                 kAloneBlocks},
          .vocab_size = kTinyVocabulary,
          .max_positions = kMaxPositions};
}

double NllOfLast(const std::vector<engine::SampledToken>& logprobs, size_t count) {
  SKEIN_CHECK(logprobs.size() >= count);
  double nll = 0;
  for (size_t i = logprobs.size() - count; i < logprobs.size(); ++i) nll -= logprobs[i].logprob;
  return nll;
}

class EmulatedOracle final : public Oracle {
 public:
  std::vector<engine::SampledToken> AnswerTo(const scheduler::RequestSpec& spec) override {
    return engine::EmulatedAnswer(EmulatedAlone(), spec.prompt, spec.max_tokens,
                                  SamplingFrom(spec));
  }
  double NllOf(const scheduler::RequestSpec& spec, const std::vector<int32_t>& output) override {
    std::vector<int32_t> text = spec.prompt;
    text.insert(text.end(), output.begin(), output.end());
    return NllOfLast(engine::EmulatedPromptLogprobs(EmulatedAlone(), text, 0), output.size());
  }
};

}  // namespace

std::string WriteTinyModel(const std::string& name, const TinyDense& dense) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string dir = absl::StrCat(folder != nullptr ? folder : "/tmp", "/", name);
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", dense.hidden},
                                 {"intermediate_size", dense.intermediate},
                                 {"num_hidden_layers", kLayers},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", kTinyKvHeads},
                                 {"head_dim", kHeadDim},
                                 {"vocab_size", kTinyVocabulary},
                                 {"max_position_embeddings", kMaxPositions}};
  const absl::Status written =
      tools::WriteRandomCheckpoint(dir, config, {.dtype = dense.dtype, .seed = 9, .shards = 1});
  SKEIN_CHECK_MSG(written.ok(), written.ToString().c_str());
  return dir;
}

scheduler::SpecPtr TinyRequest(uint64_t serial, int64_t prompt_tokens, int64_t max_tokens) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {1, serial};
  spec->model = "m";
  for (uint64_t i = 0; i < static_cast<uint64_t>(prompt_tokens); ++i) {
    spec->prompt.push_back(static_cast<int32_t>((serial * 31 + i * 7) % kTinyVocabulary));
  }
  spec->max_tokens = max_tokens;
  v1::SamplingParams sampling;
  sampling.set_temperature(serial % 2 == 0 ? 0 : 0.9F);
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_seed(serial);
  sampling.set_top_logprobs(0);
  spec->sampling = sampling.SerializeAsString();
  return spec;
}

WorkerOptions TinyWorkerOptions(const std::string& device, const std::string& dir, int blocks) {
  WorkerOptions options;
  options.device = device;
  options.block_tokens = kTinyBlockTokens;
  int64_t block_bytes = int64_t{2} * kTinyBlockTokens * 2 * kLayers;  // K and V, of 2 bytes
  if (device == "cpu") {
    options.model = dir;
    options.reproducible = "on";
    block_bytes *= kTinyKvHeads * kHeadDim;
  } else {
    options.served_name = "m";
    options.emulated_vocab_size = kTinyVocabulary;
    options.emulated_layers = kLayers;
    options.emulated_kv_heads = kEmulatedKvHeads;
    options.emulated_head_dim = kEmulatedHeadDim;
    options.max_positions = kMaxPositions;
    block_bytes *= kEmulatedKvHeads * kEmulatedHeadDim;
  }
  options.kv_gib = (blocks + 0.5) * static_cast<double>(block_bytes) / (1 << 30);
  return options;
}

std::unique_ptr<Oracle> MakeTinyOracle(const std::string& device, const std::string& dir) {
  if (device == "cpu") return std::make_unique<TinyModelAlone>(dir);
  return std::make_unique<EmulatedOracle>();
}

TinyModelAlone::TinyModelAlone(const std::string& dir) : table_(kAloneBlocks) {
  engine::ModelEngineOptions options;
  options.num_blocks = kAloneBlocks;
  options.block_tokens = kTinyBlockTokens;
  engine_ =
      engine::MakeModelEngine(dir, engine::MakeCpuOps({.threads = 1, .reproducible = true}).value(),
                              engine::MakeCpuDevice(), options)
          .value();
  std::iota(table_.begin(), table_.end(), 0);
}

std::vector<engine::SampledToken> TinyModelAlone::AnswerTo(const scheduler::RequestSpec& spec) {
  std::vector<engine::SampledToken> answer = {Run(spec, spec.prompt, {})};
  std::vector<int32_t> output = {answer.back().token};
  while (static_cast<int64_t>(output.size()) < spec.max_tokens) {
    answer.push_back(Run(spec, {output.back()}, output));
    output.push_back(answer.back().token);
  }
  return answer;
}

double TinyModelAlone::NllOf(const scheduler::RequestSpec& spec,
                             const std::vector<int32_t>& output) {
  std::vector<int32_t> text = spec.prompt;
  text.insert(text.end(), output.begin(), output.end());
  const std::vector<int32_t> next(text.begin() + 1, text.end());
  text.pop_back();
  const engine::SamplingParams sampling = SamplingFrom(spec);
  engine::SequenceStep step;
  step.tokens = text;
  step.block_table = table_;
  step.sampling = &sampling;
  step.prompt = text;
  step.next_tokens = next;
  std::vector<engine::SequenceResult> results;
  const absl::Status ran = engine_->Step({&step, 1}, nullptr, &results);
  SKEIN_CHECK_MSG(ran.ok() && results[0].status.ok(), ran.ToString().c_str());
  return NllOfLast(results[0].prompt_logprobs, output.size());
}

std::vector<int32_t> TinyModelAlone::TokensOf(const scheduler::RequestSpec& spec) {
  std::vector<int32_t> tokens;
  for (const engine::SampledToken& one : AnswerTo(spec)) tokens.push_back(one.token);
  return tokens;
}

int32_t TinyModelAlone::FirstToken(const scheduler::RequestSpec& spec) {
  return Run(spec, spec.prompt, {}).token;
}

void TinyModelAlone::CopyKv(const std::vector<int32_t>& blocks,
                            const engine::StepEngine& to) const {
  const auto bytes = static_cast<size_t>(engine_->Spec().kv.BlockBytes());
  for (size_t layer = 0; layer < to.KvRegions().size(); ++layer) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::memcpy(static_cast<std::byte*>(to.KvRegions()[layer].base) +
                      static_cast<size_t>(blocks[i]) * bytes,
                  static_cast<std::byte*>(engine_->KvRegions()[layer].base) + i * bytes, bytes);
    }
  }
}

engine::SampledToken TinyModelAlone::Run(const scheduler::RequestSpec& spec,
                                         const std::vector<int32_t>& tokens,
                                         const std::vector<int32_t>& output) {
  const engine::SamplingParams sampling = SamplingFrom(spec);
  engine::SequenceStep step;
  step.tokens = tokens;
  step.position = output.empty() ? 0 : static_cast<int64_t>(spec.prompt.size() + output.size()) - 1;
  step.block_table = table_;
  step.sample = true;
  step.sampling = &sampling;
  step.token_index = output.size();
  step.prompt = spec.prompt;
  step.output = output;
  std::vector<engine::SequenceResult> results;
  const absl::Status ran = engine_->Step({&step, 1}, nullptr, &results);
  SKEIN_CHECK_MSG(ran.ok() && results[0].status.ok(), ran.ToString().c_str());
  return results[0].sampled;
}

}  // namespace skein::services::testing
