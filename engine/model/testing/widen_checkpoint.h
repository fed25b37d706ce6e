// A copy of a bf16 checkpoint in f32: what a shipped model says without bf16's rounding. Or one of
// several dtypes, in which only some tensors are f32.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace skein::engine {

// Writes config.json and model.safetensors to `to`, which is created; f32 become the tensors that
// `widens` names, all when it is null. Aborts on a broken checkpoint.
void WidenCheckpoint(const std::string& from, const std::string& to,
                     const std::function<bool(const std::string& name)>& widens = nullptr);

}  // namespace skein::engine
