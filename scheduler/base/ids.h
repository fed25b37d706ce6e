// Strong types of the ids that travel. All are plain values with a total order; 0 means "none".
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "scheduler/vocabulary/block_id.h"

namespace skein::scheduler {

// A request of one router. `router` is the random incarnation of the router's process and `serial`
// grows, so an id is never used twice. An `n` = k request of a client is k requests.
struct RequestId {
  uint64_t router = 0;
  uint64_t serial = 0;
  auto operator<=>(const RequestId&) const = default;
};

// A registered worker; given by the orchestrator, new at every registration.
struct InstanceId {
  uint64_t value = 0;
  auto operator<=>(const InstanceId&) const = default;
};

// A worker process: 64 random bits that it chose at its start.
struct Incarnation {
  uint64_t value = 0;
  auto operator<=>(const Incarnation&) const = default;
};

// One life of an orchestrator. `number` grows with each (--state-dir); a lower one is refused, and
// so is an equal one of another process.
struct Generation {
  uint64_t number = 0;
  Incarnation orchestrator;
  bool operator==(const Generation&) const = default;
  // Who has heard of `seen` listens to this one.
  bool MayFollow(const Generation& seen) const { return number > seen.number || *this == seen; }
};

// Epochs, plan sequences, instance ids and the sessions of streams are numbered by their
// orchestrator: its generation, then a counter of 40 bits (10,000 a second for three years).
inline constexpr int kCounterBits = 40;
inline constexpr uint64_t kGenerationMax = (uint64_t{1} << 23) - 1;
constexpr uint64_t FirstNumberOf(uint64_t generation) { return (generation << kCounterBits) + 1; }
constexpr uint64_t GenerationOf(uint64_t number) { return number >> kCounterBits; }

// One assignment of a request. Only grows, over all requests of one cluster; an older one is
// refused with FAILED_PRECONDITION.
struct Epoch {
  uint64_t value = 0;
  auto operator<=>(const Epoch&) const = default;
};

// The global order of plans: every instance runs its prefill work in this order.
struct PlanSequence {
  uint64_t value = 0;
  auto operator<=>(const PlanSequence&) const = default;
};

using skein::BlockId;

// An incoming RPC (or stream) that a core will answer. The shell numbers them; never used twice
// within one process.
struct CallId {
  uint64_t value = 0;
  auto operator<=>(const CallId&) const = default;
};

inline std::string ToString(RequestId id) {
  return std::to_string(id.router) + "/" + std::to_string(id.serial);
}

}  // namespace skein::scheduler
