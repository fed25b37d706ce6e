#include "engine/checkpoint/generation_config.h"

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
  const bool samples = fields.Bool("do_sample", false);
  const auto number = [&](const char* field, double low, double high) -> std::optional<float> {
    const double value = fields.Number(field, 0.0, low, high);
    if (!samples || !fields.Has(field)) return std::nullopt;
    return static_cast<float>(value);
  };
  config.temperature = number("temperature", 0.0, 100.0);
  config.top_p = number("top_p", 1e-9, 1.0);
  config.min_p = number("min_p", 0.0, 1.0);
  const int64_t top_k = fields.Int("top_k", 0, 0, int64_t{1} << 30);
  if (samples && fields.Has("top_k")) config.top_k = static_cast<int>(top_k);
  const double penalty = fields.Number("repetition_penalty", 1.0, 1e-6, 1e6);
  if (fields.Has("repetition_penalty")) config.repetition_penalty = static_cast<float>(penalty);
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
