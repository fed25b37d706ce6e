// The groups that a node's instances switch between: all aligned subsets whose size is a power of
// two, made before they are needed. Taking one creates nothing.
//
// Of n instances, with indexes 0 … n - 1 in the order of `addresses`, these are the groups
// {k * 2^j, …, (k + 1) * 2^j - 1} that lie within n. Each instance holds its own ends only: at most
// 1 + log2(n). Not thread-safe; the communicators are as communicator.h says.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"

namespace skein::engine {

class GroupPool {
 public:
  // `id` is the same at every instance and never used twice for these addresses. The errors are
  // Fabric::MakeGroup's. `fabric` outlives the pool.
  static absl::StatusOr<std::unique_ptr<GroupPool>> Make(Fabric* fabric, uint64_t id,
                                                         std::span<const std::string> addresses,
                                                         int index);

  // Runs one empty collective on every group, so that the first real one finds its connections
  // open. All instances of the node call it; the error is the first group's that failed.
  absl::Status Connect(CommDeadline deadline);

  // The group of these instances, in ascending order; the pool keeps it. INVALID_ARGUMENT: not an
  // aligned power of two, or without this instance. UNAVAILABLE of its calls, once it broke, is for
  // good: the survivors make a new pool under a new id.
  absl::StatusOr<Communicator*> Take(std::span<const int> members);

 private:
  explicit GroupPool(int index) : index_(index) {}

  const int index_;
  std::map<int, std::unique_ptr<Communicator>> groups_;  // by size
};

}  // namespace skein::engine
