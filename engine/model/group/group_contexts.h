// The groups that a node's instances switch between: one GroupContext for every aligned subset
// whose size is a power of two (2, 4, 8, …), with the communicators of every mode, made before they
// are needed. Taking one creates nothing; nor does a request, a step, or a change of the mode.
//
// Of n instances, with indexes 0 … n - 1 in the order of their addresses, these are the groups
// {k * 2^j, …, (k + 1) * 2^j - 1} that lie within n. An instance holds its own ends only: at most
// log2(n) contexts.
//
// Generations. The contexts of a generation are made together, in the background: when an instance
// registers, and again, under a higher generation, when one was lost or a step broke a context's
// communicators. All instances of the node make the same generation. Contexts of a former one stay
// good (or broken) for those who hold them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/model/group/group_comms.h"
#include "engine/parallel/group_part.h"

namespace skein::engine {

// One rank's end of one group. Its steps are run by one thread at a time.
class GroupContext {
 public:
  GroupContext(uint64_t generation, int rank, int size, GroupComms comms)
      : generation_(generation), rank_(rank), size_(size), comms_(std::move(comms)) {}

  uint64_t generation() const { return generation_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // REQUIRES: the mode's ranks are size().
  GroupPart Part(GroupMode mode, CommDeadline deadline) const {
    return comms_.Part(mode, deadline);
  }

  // Breaks its communicators, at every rank; any thread. It is of no use any more: the node needs a
  // new generation.
  void Abort(const absl::Status& reason) { comms_.Abort(reason); }

 private:
  friend class GroupContexts;

  const uint64_t generation_;
  const int rank_;
  const int size_;
  GroupComms comms_;
};

// The node as one generation has it; the same at all instances but for `index`.
struct NodeMembers {
  uint64_t generation = 0;
  std::vector<std::string> addresses;  // of their fabrics
  int index = 0;                       // of this instance
};

class GroupContexts {
 public:
  struct Options {
    // How long the instances of a node may take to come, each to make its own ends.
    std::chrono::milliseconds connect_max{30'000};
    // Any thread: a generation is there, or why it could not be made. May be empty.
    std::function<void(uint64_t generation, const absl::Status&)> made;
  };

  // `fabric` outlives this. Nothing is made yet.
  GroupContexts(Fabric* fabric, Options options);
  ~GroupContexts();  // does not wait for the others

  // Makes the contexts of a generation in the background, and connects them: afterwards a group's
  // first step finds its connections open. Until then Take is UNAVAILABLE. FAILED_PRECONDITION: the
  // generation is not higher than the latest. INVALID_ARGUMENT: no such index.
  absl::Status Make(NodeMembers node);

  // The context of these instances, in ascending order, of the latest generation. INVALID_ARGUMENT:
  // not an aligned power of two, at least 2, with this instance. UNAVAILABLE: it is being made, or
  // could not be.
  absl::StatusOr<std::shared_ptr<GroupContext>> Take(std::span<const int> members) const;

  // How many contexts were made since the start: stands still but for new generations.
  uint64_t made() const;

 private:
  using Contexts = std::map<int, std::shared_ptr<GroupContext>>;  // by size

  void Loop();
  absl::StatusOr<Contexts> MakeAll(const NodeMembers& node);
  absl::Status Connect(const Contexts& contexts, CommDeadline deadline);

  Fabric* const fabric_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<NodeMembers> next_;  // to be made
  NodeMembers latest_;
  Contexts making_;    // which others may wait for
  Contexts contexts_;  // of latest_, once status_ is OK
  absl::Status status_;
  uint64_t made_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace skein::engine
