// A copy of a checkpoint in f32: what a shipped bf16 model says without bf16's rounding.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace skein::engine {

// Writes config.json and model.safetensors to `to`, which is created. Aborts on a broken
// checkpoint.
void WidenCheckpoint(const std::string& from, const std::string& to);

}  // namespace skein::engine
