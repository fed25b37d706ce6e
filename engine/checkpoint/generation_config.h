// generation_config.json: what the model's makers suggest for sampling. A folder without the file
// suggests nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::engine {

// Absent: the file does not say. `do_sample` is not looked at: as in vLLM, a value that stands in
// the file holds, and a client that wants the most likely token asks for temperature 0.
struct GenerationConfig {
  std::vector<int32_t> eos_ids;  // empty: use config.json's
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<int> top_k;  // 0: off, which the file may also write -1
  std::optional<float> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
};

// INVALID_ARGUMENT names field and value.
absl::StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view json_text, int vocab_size);
// Reads `<model_dir>/generation_config.json`; an empty one when there is no such file.
absl::StatusOr<GenerationConfig> LoadGenerationConfig(const std::string& model_dir, int vocab_size);

}  // namespace skein::engine
