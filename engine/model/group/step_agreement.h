// Before a group runs a step, its ranks make sure that all were given the same one, and that none
// refuses a sequence that the others run.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/engine.h"

namespace skein::engine {

// A sequence that one rank refuses (for its own blocks, say) is refused in `results` at all.
// `key_segment` is Ops::KeySegment. `scratch` is memory of the device, at least (ranks + 1) * 16
// bytes. FAILED_PRECONDITION, at every rank: they were given other steps, or have other models.
// Other errors are the communicator's; the group is then broken.
absl::Status AgreeOnStep(const GroupPart& part, std::span<const SequenceStep> sequences,
                         const EngineSpec& spec, int64_t key_segment, Device* device,
                         std::byte* scratch, std::vector<SequenceResult>& results);

// Breaks the step's groups: no rank waits for one that has given up.
void AbortGroup(const GroupPart& part, const absl::Status& reason);

}  // namespace skein::engine
