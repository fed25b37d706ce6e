// KvDigest: one number for all that makes the KV of two builds interchangeable.
#pragma once

#include <cstdint>

#include "scheduler/kv/handoff_shape.h"

namespace skein::scheduler {

// Of the fields of the shape: format, model hash (which covers weights and config.json), dtype,
// layout and sizes. Never 0. A worker tells it when it registers, and workers of one model with
// different digests are not paired. A worker of 0.3.0 tells none; its orchestrator-side value is
// computed from its shape. So it must not change for shapes that 0.3.0 has: a later build in
// which something else matters mixes that in only where it differs from 0.3.0.
uint64_t KvDigest(const HandoffShape& shape);

}  // namespace skein::scheduler
