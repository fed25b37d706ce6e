// The orchestrator's generation, kept in the file `generation` of a folder (--state-dir).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services {

// The number for this start: one more than the file has, and kept there before this returns. A file
// that is not there counts as 0, and so does one without a number, which is logged: workers and
// routers tell the orchestrator of a higher one. UNAVAILABLE: the file cannot be read or written.
absl::StatusOr<uint64_t> NextGeneration(const std::string& folder);

// Keeps the number, on the disk when this returns.
absl::Status StoreGeneration(const std::string& folder, uint64_t generation);

}  // namespace skein::services
