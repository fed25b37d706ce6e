// Writes a Hugging Face folder (config.json + safetensors) of random weights, for tests and
// benchmarks: any shape of the dense architectures that the engine loads, in any dtype, in one file
// or several. The same config, options and version give the same bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "nlohmann/json_fwd.hpp"

namespace skein::tools {

struct RandomCheckpointOptions {
  engine::DType dtype = engine::DType::kBF16;
  uint64_t seed = 1;
  int shards = 1;  // above 1: model-0000i-of-0000n.safetensors and their index
};

// Writes `config` as config.json; its sizes, biases, norms and tied embeddings determine the
// tensors. Matrices are uniform with variance 1 / columns, norms near 1, biases small. Creates
// `dir`. Errors name the file or the missing field.
absl::Status WriteRandomCheckpoint(const std::string& dir, const nlohmann::json& config,
                                   const RandomCheckpointOptions& options);

// Shapes for benchmarks: "1.1b" is TinyLlama's, "0.1b" a tenth of it, "llama-3-8b" (for more
// positions than its own 8192) and "qwen3-0.6b" are theirs. Null when unknown.
nlohmann::json NamedConfig(const std::string& name);

}  // namespace skein::tools
