// Strong types for ids in messages; those that the engine has, too, are the vocabulary's. All are
// plain values with a total order; 0 means "none".
#pragma once

#include <compare>
#include <cstdint>

#include "scheduler/vocabulary/block_id.h"
#include "scheduler/vocabulary/epoch.h"
#include "scheduler/vocabulary/grant_id.h"
#include "scheduler/vocabulary/request_id.h"

namespace skein::scheduler {

using skein::BlockId;
using skein::Epoch;
using skein::GrantId;
using skein::RequestId;
using skein::ToString;

// A registered worker. The orchestrator assigns a new id at every registration.
struct InstanceId {
  uint64_t value = 0;
  auto operator<=>(const InstanceId&) const = default;
};

// A worker process: 64 random bits chosen at its start.
struct Incarnation {
  uint64_t value = 0;
  auto operator<=>(const Incarnation&) const = default;
};

// One run of an orchestrator. `number` grows with each run (--state-dir). A lower number is
// refused, and an equal number from another process, too.
struct Generation {
  uint64_t number = 0;
  Incarnation orchestrator;
  bool operator==(const Generation&) const = default;
  // Whether a process that has seen `seen` accepts this generation.
  bool MayFollow(const Generation& seen) const { return number > seen.number || *this == seen; }
};

// Epochs, plan sequences, instance ids and stream sessions are numbered by their orchestrator: its
// generation, then a counter of 40 bits (10,000 per second for three years).
inline constexpr int kCounterBits = 40;
inline constexpr uint64_t kGenerationMax = (uint64_t{1} << 23) - 1;
constexpr uint64_t FirstNumberOf(uint64_t generation) { return (generation << kCounterBits) + 1; }
constexpr uint64_t GenerationOf(uint64_t number) { return number >> kCounterBits; }

// The global order of plans; every instance runs its prefill work in this order.
struct PlanSequence {
  uint64_t value = 0;
  auto operator<=>(const PlanSequence&) const = default;
};

// An incoming RPC or stream that a core will answer. Numbered by the shell; never reused within a
// process.
struct CallId {
  uint64_t value = 0;
  auto operator<=>(const CallId&) const = default;
};

}  // namespace skein::scheduler
