// HeldDigest: a hash of the set of (request, epoch) pairs that a worker holds. The worker sends it
// with each report. The orchestrator computes it from its own records and asks for the full list
// when they differ. Adding and removing a pair is O(1).
//
// It is the sum of the pairs' hashes modulo 2^64, so the order does not matter. Two different sets
// collide with probability 2^-64. It detects errors, not forgery.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {

class HeldDigest {
 public:
  // Add each pair once before removing it.
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

// REQUIRES: the requests differ in id or epoch.
inline uint64_t DigestOf(const std::vector<HeldRequest>& held) {
  HeldDigest digest;
  for (const HeldRequest& one : held) digest.Add(one.id, one.epoch);
  return digest.value();
}

}  // namespace skein::scheduler
