// The models a router serves: tokenizer, chat template, limits and defaults of each, read from the
// model's Hugging Face folder at start. Immutable afterwards; any thread may read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/chat_template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace skein::services {

// What holds where a request does not say; generation_config.json's where it has them, as in vLLM.
struct SamplingDefaults {
  double temperature = 1;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  int64_t top_k = 0;  // 0: off
};

struct ServedModel {
  std::string name;
  std::unique_ptr<engine::Tokenizer> tokenizer;
  std::optional<engine::ChatTemplate> chat_template;
  // Of generation_config.json or config.json, and the tokenizer's; all below vocab_size.
  std::vector<int32_t> eos_ids;
  int64_t max_positions = 0;  // prompt and output together, as far as YaRN extends them
  int64_t vocab_size = 0;     // tokens that can be computed: rows of the embedding
  SamplingDefaults defaults;
  std::optional<int64_t>
      max_new_tokens;   // generation_config.json's default length of a chat's answer
  int64_t created = 0;  // seconds since 1970: when it was loaded

  // Tokens that have a text, or can be computed: a tokenizer may have more than the embedding.
  int64_t known_tokens() const { return std::max<int64_t>(vocab_size, tokenizer->vocab_size()); }
};

class Models {
 public:
  // `specs`: "NAME=DIR" or "DIR". Reports every problem at once.
  static absl::StatusOr<Models> Load(const std::vector<std::string>& specs);

  const ServedModel* Find(const std::string& name) const;
  // The only one, nullptr when there are several.
  const ServedModel* Only() const;
  const std::map<std::string, std::unique_ptr<ServedModel>>& all() const { return models_; }

  void Add(std::unique_ptr<ServedModel> model);

 private:
  std::map<std::string, std::unique_ptr<ServedModel>> models_;
};

}  // namespace skein::services
