// Whether a checkpoint folder has all of its files yet, for those that wait until it was filled.
// Cheap: no weights are read.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace skein::engine {

struct CheckpointParts {
  bool tokenizer = true;
  bool weights = true;
};

// config.json and what `parts` asks for. NOT_FOUND names the folder and what is not there or not
// complete: a file that is missing, JSON that ends too early, a safetensors file that is shorter
// than its header says. How many more there are is said, too.
absl::Status CheckCheckpointFiles(const std::string& folder, CheckpointParts parts);

}  // namespace skein::engine
