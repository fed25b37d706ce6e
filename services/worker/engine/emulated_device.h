// --device=emulated: a worker whose steps take the time of a latency profile and whose KV carries
// content tags (engine/emulated). It needs no weights; --model may name any model's folder, of
// which only config.json's vocab_size and max_position_embeddings are read, or be absent.
//
// A profile has coefficients for some SP sizes; a group of another size takes the next smaller
// one's. A bound group's TP steps take less time by the gain of its size in the profile's
// `formations`; of a size that is not there, as much as one instance's.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/stepping/step_engine.h"
#include "services/worker/process/worker_options.h"

namespace skein::services {

// INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED name the flag or field and the value. `device`
// holds the KV.
absl::StatusOr<std::unique_ptr<engine::StepEngine>> MakeEmulatedEngine(
    const WorkerOptions& options, std::shared_ptr<engine::Device> device);

}  // namespace skein::services
