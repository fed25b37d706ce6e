// Waits for a model folder that is still being filled.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "engine/checkpoint/checkpoint_files.h"
#include "services/flags/flags.h"

namespace skein::services {

// --wait-for-model-s.
void RegisterModelWait(double* seconds, FlagSet* flags);

// Returns when the folder is complete; at once if `seconds` is 0. `say` gets what is missing, each
// time that it changes; the log gets it once. DEADLINE_EXCEEDED names the folder and what is
// missing.
absl::Status WaitForModel(const std::string& folder, engine::CheckpointParts parts, double seconds,
                          const std::function<void(const std::string&)>& say);

}  // namespace skein::services
