#include "engine/checkpoint/model_config.h"

#include <algorithm>

#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

using nlohmann::json;

// Beyond any model that exists, and small enough that products of two fit 64 bits with room.
constexpr int64_t kWidthMax = 1 << 20;
constexpr int64_t kLayersMax = 4096;
constexpr int64_t kHeadsMax = 1 << 14;
constexpr int64_t kHeadDimMax = 1 << 14;
constexpr int64_t kVocabMax = 1 << 24;
constexpr int64_t kPositionsMax = 1 << 28;

void ReadArchitecture(const json& config, FieldReader& fields, ModelConfig* model) {
  const json names = fields.Has("architectures") ? config.at("architectures") : json();
  if (!names.is_array() || names.size() != 1 || !names[0].is_string()) {
    fields.Refuse("architectures", "must be a list of one name");
    return;
  }
  model->architecture_name = names[0].get<std::string>();
  if (model->architecture_name == "LlamaForCausalLM") {
    model->architecture = Architecture::kLlama;
  } else if (model->architecture_name == "MistralForCausalLM") {
    model->architecture = Architecture::kMistral;
  } else if (model->architecture_name == "Qwen2ForCausalLM") {
    model->architecture = Architecture::kQwen2;
  } else if (model->architecture_name == "Qwen3ForCausalLM") {
    model->architecture = Architecture::kQwen3;
  } else {
    fields.Refuse("architectures",
                  "not supported (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
                  "Qwen3ForCausalLM are)");
  }
}

int ReadHeadDim(FieldReader& fields, const ModelConfig& model) {
  if (!fields.Has("head_dim") && model.architecture != Architecture::kQwen3) {
    if (model.hidden_size % model.num_heads != 0) {
      fields.Refuse("hidden_size", "not a multiple of num_attention_heads, and no head_dim");
    }
    if (model.hidden_size / model.num_heads % 2 != 0) {
      fields.Refuse("hidden_size", "gives an odd head_dim, which has no rotation");
    }
    return model.hidden_size / model.num_heads;
  }
  const int head_dim = static_cast<int>(fields.Int("head_dim", 128, 1, kHeadDimMax));
  if (head_dim % 2 != 0) fields.Refuse("head_dim", "must be even");
  return head_dim;
}

void ReadSizes(FieldReader& fields, ModelConfig* model) {
  model->hidden_size = static_cast<int>(fields.RequireInt("hidden_size", 1, kWidthMax));
  model->intermediate_size = static_cast<int>(fields.RequireInt("intermediate_size", 1, kWidthMax));
  model->num_layers = static_cast<int>(fields.RequireInt("num_hidden_layers", 1, kLayersMax));
  model->num_heads = static_cast<int>(fields.RequireInt("num_attention_heads", 1, kHeadsMax));
  model->num_kv_heads =
      static_cast<int>(fields.Int("num_key_value_heads", model->num_heads, 1, kHeadsMax));
  model->vocab_size = static_cast<int>(fields.RequireInt("vocab_size", 1, kVocabMax));
  model->max_positions =
      static_cast<int>(fields.RequireInt("max_position_embeddings", 1, kPositionsMax));
  model->rms_norm_eps = static_cast<float>(fields.Number("rms_norm_eps", 1e-6, 0.0, 1.0));
  if (!fields.status().ok()) return;
  if (model->num_heads % model->num_kv_heads != 0) {
    fields.Refuse("num_key_value_heads",
                  "does not divide num_attention_heads = " + std::to_string(model->num_heads));
    return;
  }
  model->head_dim = ReadHeadDim(fields, *model);
  if (int64_t{model->num_heads} * model->head_dim > kWidthMax) {
    fields.Refuse("num_attention_heads", "times head_dim is too wide");
  }
}

void ReadVariant(FieldReader& fields, ModelConfig* model) {
  const bool attention_bias =
      fields.Bool("attention_bias", model->architecture == Architecture::kQwen2);
  const bool mlp_bias = fields.Bool("mlp_bias", false);
  switch (model->architecture) {
    case Architecture::kLlama:
      model->qkv_bias = model->output_bias = attention_bias;
      model->mlp_bias = mlp_bias;
      return;
    case Architecture::kMistral:
      if (attention_bias) fields.Refuse("attention_bias", "Mistral has none");
      break;
    case Architecture::kQwen2:
      if (!attention_bias) fields.Refuse("attention_bias", "Qwen2 always has it");
      model->qkv_bias = true;
      break;
    case Architecture::kQwen3:
      model->qkv_bias = model->output_bias = attention_bias;
      model->qk_norm = true;
      break;
  }
  if (mlp_bias) fields.Refuse("mlp_bias", "only Llama has it");
}

void RefuseUnsupported(const json& config, FieldReader& fields) {
  const std::string act = fields.String("hidden_act", "silu");
  if (act != "silu" && act != "swish") fields.Refuse("hidden_act", "only silu is supported");
  for (const char* field : {"quantization_config", "compression_config", "text_config",
                            "num_experts", "num_local_experts", "kv_lora_rank"}) {
    if (fields.Has(field)) fields.Refuse(field, "not supported");
  }
  for (const char* field : {"logit_scale", "attn_logit_softcapping", "final_logit_softcapping",
                            "embedding_multiplier", "residual_multiplier", "logits_scaling"}) {
    if (fields.Has(field)) fields.Refuse(field, "not supported");
  }
  if (fields.Has("layer_types")) {
    const json& types = config.at("layer_types");
    const bool full =
        types.is_array() && std::all_of(types.begin(), types.end(),
                                        [](const json& t) { return t == "full_attention"; });
    if (!full) fields.Refuse("layer_types", "only full_attention is supported");
  }
}

// Full attention equals windowed attention while no sequence outgrows the window.
void RefuseWindow(const json& config, FieldReader& fields, const ModelConfig& model) {
  if (model.architecture == Architecture::kLlama) return;
  if (model.architecture != Architecture::kMistral) {
    if (fields.Bool("use_sliding_window", false)) {
      fields.Refuse("use_sliding_window", "only full attention is supported");
    }
    return;
  }
  const bool absent = !config.contains("sliding_window");
  if (!absent && !fields.Has("sliding_window")) return;  // null: full attention
  const int64_t window = fields.Int("sliding_window", 4096, 1, kPositionsMax);
  if (window < model.max_positions) {
    fields.Refuse("sliding_window",
                  (absent ? "meaning 4096, is smaller than " : "smaller than ") +
                      std::to_string(model.max_positions) +
                      " positions; only full attention is supported (limit the positions to the "
                      "window to serve this model)");
  }
}

void ReadDType(FieldReader& fields) {
  const char* field = fields.Has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = fields.String(field, "float32");
  if (name != "float32" && name != "bfloat16" && name != "float16" && name != "auto") {
    fields.Refuse(field, "only bfloat16, float16 and float32 are supported");
  }
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json_text, int positions_limit) {
  const absl::StatusOr<json> config = ParseStrictJson(json_text, "config.json");
  if (!config.ok()) return config.status();
  FieldReader fields(*config, "config.json: ");
  if (!fields.status().ok()) return fields.status();

  ModelConfig model;
  ReadArchitecture(*config, fields, &model);
  RefuseUnsupported(*config, fields);
  ReadSizes(fields, &model);
  if (!fields.status().ok()) return fields.status();
  const absl::StatusOr<RopeConfig> rope = ParseRopeConfig(*config, model.max_positions);
  if (!rope.ok()) return rope.status();
  model.rope = *rope;
  model.max_positions = static_cast<int>(ExtendedPositions(model.rope, model.max_positions));
  if (positions_limit > 0) model.max_positions = std::min(model.max_positions, positions_limit);
  ReadVariant(fields, &model);
  RefuseWindow(*config, fields, model);
  ReadDType(fields);
  model.tied_embeddings = fields.Bool("tie_word_embeddings", false);
  model.eos_ids = fields.Ids("eos_token_id", model.vocab_size);
  if (!fields.status().ok()) return fields.status();
  return model;
}

}  // namespace skein::engine
