#include "tools/random_checkpoint/random_checkpoint.h"

#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <vector>

#include "engine/base/f16.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/mix64.h"

namespace skein::tools {
namespace {

using engine::DType;
using nlohmann::json;

struct TensorPlan {
  std::string name;
  std::vector<int64_t> shape;
  float centre = 0.0f;
  float reach = 0.0f;  // values are uniform in centre ± reach

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
};

// The tensors of one model, sorted by name within a layer.
class Planner {
 public:
  explicit Planner(const json& config) : config_(config) {}

  std::vector<TensorPlan> Plan() {
    const std::string architecture = config_.at("architectures").at(0);
    const bool qwen2 = architecture == "Qwen2ForCausalLM";
    const bool qwen3 = architecture == "Qwen3ForCausalLM";
    const bool attention_bias = config_.value("attention_bias", false);
    const int64_t hidden = config_.at("hidden_size");
    const int64_t inner = config_.at("intermediate_size");
    const int64_t heads = config_.at("num_attention_heads");
    const int64_t kv_heads = config_.value("num_key_value_heads", heads);
    const int64_t head_dim = config_.value("head_dim", qwen3 ? 128 : hidden / heads);
    const int64_t vocab = config_.at("vocab_size");
    const bool mlp_bias = config_.value("mlp_bias", false);

    if (!config_.value("tie_word_embeddings", false)) Matrix("lm_head", vocab, hidden, false);
    plans_.push_back({"model.embed_tokens.weight", {vocab, hidden}, 0.0f, 1.0f});
    for (int layer = 0; layer < config_.at("num_hidden_layers").get<int>(); ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      Norm(prefix + "input_layernorm", hidden);
      Matrix(prefix + "mlp.down_proj", hidden, inner, mlp_bias);
      Matrix(prefix + "mlp.gate_proj", inner, hidden, mlp_bias);
      Matrix(prefix + "mlp.up_proj", inner, hidden, mlp_bias);
      Norm(prefix + "post_attention_layernorm", hidden);
      if (qwen3) Norm(prefix + "self_attn.k_norm", head_dim);
      Matrix(prefix + "self_attn.k_proj", kv_heads * head_dim, hidden, qwen2 || attention_bias);
      Matrix(prefix + "self_attn.o_proj", hidden, heads * head_dim, attention_bias && !qwen2);
      if (qwen3) Norm(prefix + "self_attn.q_norm", head_dim);
      Matrix(prefix + "self_attn.q_proj", heads * head_dim, hidden, qwen2 || attention_bias);
      Matrix(prefix + "self_attn.v_proj", kv_heads * head_dim, hidden, qwen2 || attention_bias);
    }
    Norm("model.norm", hidden);
    return std::move(plans_);
  }

 private:
  void Norm(const std::string& name, int64_t size) {
    plans_.push_back({name + ".weight", {size}, 1.0f, 0.3f});
  }
  void Matrix(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    if (bias) plans_.push_back({name + ".bias", {rows}, 0.0f, 0.2f});
    const auto reach = static_cast<float>(std::sqrt(3.0 / static_cast<double>(cols)));
    plans_.push_back({name + ".weight", {rows, cols}, 0.0f, reach});
  }

  const json& config_;
  std::vector<TensorPlan> plans_;
};

const char* FileNameOf(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kBF16 ? "BF16" : "F16";
}

uint64_t SplitMix64(uint64_t& state) { return Mix64(state += kMix64Step); }

void Append(DType dtype, float value, char* to) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(to, &value, 4);
      return;
    case DType::kBF16: {
      const engine::BF16 narrow = engine::ToBF16(value);
      std::memcpy(to, &narrow, 2);
      return;
    }
    case DType::kF16: {
      const auto narrow = static_cast<engine::F16>(value);
      std::memcpy(to, &narrow, 2);
      return;
    }
  }
}

void WriteValues(const TensorPlan& plan, DType dtype, uint64_t seed, std::ofstream& file) {
  uint64_t state = seed ^ std::hash<std::string>()(plan.name);
  const size_t element_bytes = engine::BytesOf(dtype);
  std::vector<char> buffer;
  const int64_t count = plan.elements();
  for (int64_t done = 0; done < count;) {
    const int64_t stretch = std::min<int64_t>(count - done, 1 << 18);
    buffer.resize(static_cast<size_t>(stretch) * element_bytes);
    for (int64_t i = 0; i < stretch; ++i) {
      const float unit = static_cast<float>(SplitMix64(state) >> 40) * 0x1.0p-23f - 1.0f;
      Append(dtype, plan.centre + plan.reach * unit,
             buffer.data() + static_cast<size_t>(i) * element_bytes);
    }
    file.write(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    done += stretch;
  }
}

absl::Status WriteShard(const std::string& path, std::span<const TensorPlan> plans,
                        const RandomCheckpointOptions& options) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const TensorPlan& plan : plans) {
    const int64_t end =
        offset + plan.elements() * static_cast<int64_t>(engine::BytesOf(options.dtype));
    header[plan.name] = {{"dtype", FileNameOf(options.dtype)},
                         {"shape", plan.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  for (const TensorPlan& plan : plans) WriteValues(plan, options.dtype, options.seed, file);
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError("cannot write " + path);
}

std::string ShardName(int index, int count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", index + 1, count);
  return name;
}

absl::Status WriteAll(const std::string& dir, const json& config,
                      const RandomCheckpointOptions& options) {
  const std::vector<TensorPlan> plans = Planner(config).Plan();
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/config.json") << config.dump(1) << "\n";
  if (options.shards <= 1) return WriteShard(dir + "/model.safetensors", plans, options);
  const auto shards = static_cast<size_t>(options.shards);
  json index = {{"metadata", json::object()}, {"weight_map", json::object()}};
  for (size_t i = 0; i < shards; ++i) {
    const size_t begin = plans.size() * i / shards;
    const size_t end = plans.size() * (i + 1) / shards;
    const std::string name = ShardName(static_cast<int>(i), options.shards);
    for (size_t t = begin; t < end; ++t) index["weight_map"][plans[t].name] = name;
    const absl::Status written =
        WriteShard(dir + "/" + name, std::span(plans).subspan(begin, end - begin), options);
    if (!written.ok()) return written;
  }
  std::ofstream(dir + "/model.safetensors.index.json") << index.dump(1) << "\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteRandomCheckpoint(const std::string& dir, const json& config,
                                   const RandomCheckpointOptions& options) {
  try {
    return WriteAll(dir, config, options);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(dir + ": " + error.what());
  }
}

json NamedConfig(const std::string& name) {
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"hidden_act", "silu"},
                 {"hidden_size", 2048},
                 {"intermediate_size", 5632},
                 {"num_hidden_layers", 22},
                 {"num_attention_heads", 32},
                 {"num_key_value_heads", 4},
                 {"vocab_size", 32000},
                 {"max_position_embeddings", 2048},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 10000.0},
                 {"tie_word_embeddings", false},
                 {"bos_token_id", 1},
                 {"eos_token_id", 2},
                 {"torch_dtype", "bfloat16"}};
  if (name == "1.1b") return config;
  if (name == "llama-3-8b") {
    config.update({{"hidden_size", 4096},
                   {"intermediate_size", 14336},
                   {"num_hidden_layers", 32},
                   {"num_key_value_heads", 8},
                   {"vocab_size", 128256},
                   {"max_position_embeddings", 40960},
                   {"rope_theta", 500000.0}});
    return config;
  }
  if (name == "qwen3-0.6b") {
    config.update({{"architectures", {"Qwen3ForCausalLM"}},
                   {"model_type", "qwen3"},
                   {"hidden_size", 1024},
                   {"intermediate_size", 3072},
                   {"num_hidden_layers", 28},
                   {"num_attention_heads", 16},
                   {"num_key_value_heads", 8},
                   {"head_dim", 128},
                   {"vocab_size", 151936},
                   {"max_position_embeddings", 40960},
                   {"rms_norm_eps", 1e-6},
                   {"rope_theta", 1000000.0},
                   {"tie_word_embeddings", true}});
    return config;
  }
  if (name != "0.1b") return nullptr;
  config["hidden_size"] = 768;
  config["intermediate_size"] = 2048;
  config["num_hidden_layers"] = 10;
  config["num_attention_heads"] = 12;
  return config;
}

}  // namespace skein::tools
