// config.json of the dense decoder-only transformers that Skein runs: LlamaForCausalLM,
// MistralForCausalLM (full attention), Qwen2ForCausalLM, Qwen3ForCausalLM. Defaults of absent
// fields are those of transformers. Everything that would change the result and is not supported is
// refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/rope_config.h"

namespace skein::engine {

enum class Architecture { kLlama, kMistral, kQwen2, kQwen3 };

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::string architecture_name;  // as in the file
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // even; num_heads * head_dim need not be hidden_size
  int vocab_size = 0;
  int max_positions = 0;
  float rms_norm_eps = 0.0f;
  RopeConfig rope;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of every head of q and k before the rotation
  std::vector<int32_t> eos_ids;

  int QueryColumns() const { return num_heads * head_dim; }
  int KvColumns() const { return num_kv_heads * head_dim; }
};

// `positions_limit` > 0 lowers max_positions to it; a sliding window that is then never reached is
// full attention and accepted. INVALID_ARGUMENT names field and value.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json_text, int positions_limit = 0);

}  // namespace skein::engine
