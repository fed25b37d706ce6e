// Input: the text of a config.json or generation_config.json. An accepted configuration has sizes
// from which an engine can be built.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/checkpoint/generation_config.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/load/rope_table.h"
#include "scheduler/vocabulary/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)skein::engine::ParseGenerationConfig(text, 1000);
  const auto config = skein::engine::ParseModelConfig(text);
  if (!config.ok()) return 0;
  SKEIN_CHECK(config->num_heads >= 1 && config->num_heads % config->num_kv_heads == 0);
  SKEIN_CHECK(config->head_dim >= 2 && config->head_dim % 2 == 0);
  SKEIN_CHECK(config->max_positions >= 1 && config->vocab_size >= 1);
  for (const double frequency : skein::engine::InverseFrequencies(config->rope, config->head_dim)) {
    SKEIN_CHECK(std::isfinite(frequency));
  }
  SKEIN_CHECK(!std::isnan(skein::engine::AttentionFactor(config->rope)));
  return 0;
}
