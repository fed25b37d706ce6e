// HeldDigest: a number for the set of (request, epoch) pairs that a worker holds. The worker tells
// it with each report, the orchestrator computes it from what it was told; where they differ it
// asks for the whole list. Adding and removing a pair costs the same whatever the set's size.
//
// The sum of the pairs' hashes modulo 2^64: it does not depend on the order. Two different sets
// have the same one with probability 2^-64; it guards against errors, not against forgery.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {

class HeldDigest {
 public:
  // Each pair is added once before it is removed.
  void Add(RequestId id, Epoch epoch) { sum_ += HashOf(id, epoch); }
  void Remove(RequestId id, Epoch epoch) { sum_ -= HashOf(id, epoch); }
  uint64_t value() const { return sum_; }

 private:
  static uint64_t Mix(uint64_t x) { return Mix64(x + kMix64Step); }
  static uint64_t HashOf(RequestId id, Epoch epoch) {
    return Mix(Mix(Mix(id.router) + id.serial) + epoch.value);
  }

  uint64_t sum_ = 0;
};

// Of requests that differ in id or epoch.
inline uint64_t DigestOf(const std::vector<HeldRequest>& held) {
  HeldDigest digest;
  for (const HeldRequest& one : held) digest.Add(one.id, one.epoch);
  return digest.value();
}

}  // namespace skein::scheduler
