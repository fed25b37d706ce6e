// The groups of the simulated decode workers: the communicators that they make as the orchestrator
// orders (scheduler::GroupOrder), and the wires of the step feed, as services/worker/group has
// them.
//
// A context is one aligned subset of a group under one generation. It is there when all its members
// have taken the order of that generation and live. Messages between two ranks arrive in order,
// each after a short delay; what a rank has not read waits until it opens the feed. A cut between
// two processes holds their messages up. A rank whose process dies is told to all others, once. The
// communicators of a context break when a rank closes the feed with `broken`; then every step ends
// in it, and the rank reports that its groups have failed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/messages.h"
#include "scheduler/worker/group/bound_group.h"
#include "tests/sim/network.h"

namespace skein::sim {

// From a rank's death until the other ranks have been told, at most.
inline constexpr TimeUs kDeathToldUs = 5 * scheduler::kMillisecondUs;

class FormationFeeds {
 public:
  // What the core of a rank is told of its open feed.
  struct Told {
    std::function<void(int rank, const scheduler::FeedMessage& message)> arrived;
    std::function<void(int rank, const absl::Status& why)> lost;
  };
  // Of one rank.
  struct End {
    Process* process = nullptr;
    uint64_t incarnation = 0;  // Process::generation
    bool open = false;
    Told told;
    std::deque<std::function<void(const Told&)>> unread;
    std::map<int, TimeUs> last_arrival_us;  // by sender
    bool broken = false;  // it has broken the communicators, or knows that they are
    uint64_t steps = 0;   // that it has entered
  };
  struct Context {
    uint64_t generation = 0;
    std::vector<End> ends;  // by rank
    absl::Status failure;   // of the communicators, at some rank
  };
  using ContextPtr = std::shared_ptr<Context>;
  // Where a process is bound, or about to be.
  struct Place {
    ContextPtr context;
    int rank = 0;
  };

  explicit FormationFeeds(Network* network) : network_(network) {}

  // Called when the communicators of a context have broken.
  void WhenBroken(std::function<void(const ContextPtr&)> broken) { broken_ = std::move(broken); }

  // The order arrived at the process. A generation that is not above its latest is ignored.
  void Take(Process* process, const scheduler::GroupOrder& order);
  // As WorkerLoad has them.
  struct Generations {
    uint64_t made = 0;
    uint64_t failed = 0;
  };
  Generations GenerationsOf(const Process* process) const;

  // Its place in the group of that generation; -1: it has not been told of it.
  int IndexOf(const Process* process, uint64_t generation) const;

  // The rank of the process. As DecodeShell::OpenGroup.
  absl::StatusOr<int> Open(Process* process, const scheduler::OpenFeed& feed, Told told);
  // To a rank of its open feed; without one nothing is sent.
  void Send(Process* process, int rank, const scheduler::FeedMessage& message);
  void Close(Process* process, bool broken, const absl::Status& why);
  void Died(Process* process);
  // Of its open feed; without one the context is null.
  Place PlaceOf(const Process* process) const;

  int64_t messages() const { return messages_; }

 private:
  enum class Stage { kMaking, kReady, kFailed };
  // The group as a process has it.
  struct Node {
    uint64_t generation = 0;
    int index = 0;
    std::vector<std::string> addresses;
    Stage stage = Stage::kMaking;
    bool came = false;            // it has made its own ends
    std::vector<Place> contexts;  // from small to large
    Place open;
  };

  void MakeReady(uint64_t generation);
  bool AllCame(const Node& node) const;
  Process* MemberAt(const std::string& address) const;     // null: it is dead
  static std::pair<int, int> LargestOf(const Node& node);  // first, size; of size 1: none
  ContextPtr ContextOf(const Node& node, int first, int size);
  void Push(const ContextPtr& context, int from, int to, TimeUs delay,
            std::function<void(const Told&)> tell);
  static void Read(const ContextPtr& context, int rank);

  Network* network_;
  std::function<void(const ContextPtr&)> broken_;
  std::map<const Process*, Node> nodes_;
  std::map<std::tuple<uint64_t, int, int>, ContextPtr> contexts_;  // by generation, first, size
  int64_t messages_ = 0;
};

}  // namespace skein::sim
