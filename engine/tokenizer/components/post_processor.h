// The `post_processor` of tokenizer.json, for a single text: the ids it puts before and after.
// TemplateProcessing, ByteLevel (which changes offsets only), RobertaProcessing, BertProcessing,
// Sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/text/json_reader.h"

namespace skein::engine {

struct Surroundings {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// `json` may be nullptr or null.
absl::StatusOr<Surroundings> ReadPostProcessor(const Json* json);

}  // namespace skein::engine
