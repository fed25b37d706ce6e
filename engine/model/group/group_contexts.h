// The groups that a node's instances switch between: one GroupContext for every aligned subset
// whose size is a power of two, up to kGroupRanksMax (2, 4, 8), with the communicators of every
// mode and the wire of the step feed, made before they are needed. Taking one creates nothing; nor
// does a request, a step, or a change of the mode.
//
// Of n instances, with indexes 0 … n - 1 in the order of their addresses, these are the groups
// {k * 2^j, …, (k + 1) * 2^j - 1} that lie within n. An instance holds its own ends only: at most
// three contexts, however many instances a node has.
//
// Generations. The contexts of a generation are made together, in the background: when an instance
// registers, and again, under a higher generation, when one was lost or a step broke a context's
// communicators. All instances of the node make the same generation. Contexts of a former one stay
// good (or broken) for those who hold them.
#pragma once

#include <atomic>
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
#include "engine/host/rank_wire.h"
#include "engine/model/group/group_comms.h"
#include "engine/parallel/group_part.h"

namespace skein::engine {

// Instances of the largest group that a worker may run steps in. The kernels of a group's
// collectives serve as many (kPeerRanksMax).
inline constexpr int kGroupRanksMax = 8;

// One rank's end of one group. Its steps are run by one thread at a time.
class GroupContext {
 public:
  // What a rank needs of the group, all made with the same members.
  struct Ends {
    GroupComms comms;
    std::unique_ptr<Communicator> hosts;  // buffers in the host's memory; to join the feed
    std::unique_ptr<RankWire> feed;
  };

  GroupContext(uint64_t generation, std::vector<std::string> members, int rank, Ends ends)
      : generation_(generation),
        members_(std::move(members)),
        rank_(rank),
        ends_(std::move(ends)) {}

  uint64_t generation() const { return generation_; }
  // The addresses of their fabrics, by rank.
  const std::vector<std::string>& members() const { return members_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  // REQUIRES: the mode's ranks are size().
  GroupPart Part(GroupMode mode, CommDeadline deadline) const {
    return ends_.comms.Part(mode, deadline);
  }
  // Carries the step feed: joined to the group, rank r being the context's. One thread at a time.
  RankWire* feed() const { return ends_.feed.get(); }

  // Breaks its communicators, at every rank; any thread. It is of no use any more: the node needs a
  // new generation.
  void Abort(const absl::Status& reason) {
    broken_ = true;
    ends_.comms.Abort(reason);
    const std::lock_guard lock(hosts_mutex_);
    if (ends_.hosts != nullptr) ends_.hosts->Abort(reason);
  }
  bool broken() const { return broken_; }  // here

 private:
  friend class GroupContexts;

  const uint64_t generation_;
  const std::vector<std::string> members_;
  const int rank_;
  Ends ends_;
  std::mutex hosts_mutex_;  // guards the pointer ends_.hosts, which is null once the feed is joined
  std::atomic<bool> broken_{false};
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

  // `hosts` makes groups whose buffers lie in the host's memory, among the same addresses; it may
  // be `fabric` if that does. Both outlive this. Nothing is made yet.
  GroupContexts(Fabric* fabric, Fabric* hosts, Options options);
  ~GroupContexts();  // does not wait for the others

  // Makes the contexts of a generation in the background, and connects them: afterwards a group's
  // first step finds its connections open. Until then Take is UNAVAILABLE. The former contexts that
  // nobody holds end in the background, too. FAILED_PRECONDITION: the generation is not higher than
  // the latest. INVALID_ARGUMENT: no such index.
  absl::Status Make(NodeMembers node);

  // The context of these instances, in ascending order, of the latest generation. INVALID_ARGUMENT:
  // not an aligned power of two, 2 to kGroupRanksMax, with this instance. UNAVAILABLE: it is being
  // made, or could not be.
  absl::StatusOr<std::shared_ptr<GroupContext>> Take(std::span<const int> members) const;
  // All that Take has, from small to large.
  std::vector<std::shared_ptr<GroupContext>> Ready() const;

  // How many contexts were made since the start: stands still but for new generations.
  uint64_t made() const;

  // Of the latest generation; 0: there is none.
  struct State {
    uint64_t generation = 0;
    bool ready = false;    // Take has its contexts
    absl::Status failure;  // why it could not be made, or that one of its contexts has broken
  };
  State state() const;

 private:
  using Contexts = std::map<int, std::shared_ptr<GroupContext>>;  // by size

  void Loop();
  void MakeGeneration(const NodeMembers& node);
  absl::StatusOr<Contexts> MakeAll(const NodeMembers& node);
  absl::StatusOr<GroupContext::Ends> MakeEnds(uint64_t generation,
                                              std::span<const std::string> addresses, int rank);
  static absl::Status Connect(const Contexts& contexts, CommDeadline deadline);
  static absl::Status ConnectComms(const GroupContext& context, CommDeadline deadline);
  static absl::Status JoinFeed(GroupContext* context, CommDeadline deadline);

  Fabric* const fabric_;
  Fabric* const hosts_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<NodeMembers> next_;  // to be made
  NodeMembers latest_;
  Contexts making_;    // which others may wait for
  Contexts contexts_;  // of latest_, once status_ is OK
  Contexts former_;    // which thread_ ends, before it makes others
  absl::Status status_;
  bool failed_ = false;  // latest_ could not be made
  uint64_t made_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace skein::engine
