#include "engine/checkpoint/generation_config.h"

#include <algorithm>

#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;

}  // namespace

absl::StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view json_text, int vocab_size) {
  const absl::StatusOr<nlohmann::json> json = ParseStrictJson(json_text, "generation_config.json");
  if (!json.ok()) return json.status();
  FieldReader fields(*json, "generation_config.json: ");
  GenerationConfig config;
  config.eos_ids = fields.Ids("eos_token_id", vocab_size);
  const auto number = [&](const char* field, double low, double high) -> std::optional<float> {
    const double value = fields.Number(field, 0.0, low, high);
    return fields.Has(field) ? std::optional<float>(static_cast<float>(value)) : std::nullopt;
  };
  const auto count = [&](const char* field, int64_t low) -> std::optional<int64_t> {
    const int64_t value = fields.Int(field, 0, low, int64_t{1} << 30);
    return fields.Has(field) ? std::optional<int64_t>(value) : std::nullopt;
  };
  config.temperature = number("temperature", 0.0, 100.0);
  config.top_p = number("top_p", 1e-9, 1.0);
  config.min_p = number("min_p", 0.0, 1.0);
  config.repetition_penalty = number("repetition_penalty", 1e-6, 1e6);
  if (const auto top_k = count("top_k", -1)) {
    config.top_k = static_cast<int>(std::max<int64_t>(0, *top_k));
  }
  config.max_new_tokens = count("max_new_tokens", 1);
  if (!fields.status().ok()) return fields.status();
  return config;
}

absl::StatusOr<GenerationConfig> LoadGenerationConfig(const std::string& model_dir,
                                                      int vocab_size) {
  const absl::StatusOr<std::string> text =
      ReadSmallFile(model_dir + "/generation_config.json", kFileBytesMax);
  if (absl::IsNotFound(text.status())) return GenerationConfig();
  if (!text.ok()) return text.status();
  return ParseGenerationConfig(*text, vocab_size);
}

}  // namespace skein::engine
