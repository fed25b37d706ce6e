// PathFabric: the Fabric of workers. Each group uses the fastest path that all its members support
// (comm_path.h). Every rank decides this from the members' addresses alone.
//
// A path that should work is tried before the group's first call. If the trial fails at any rank (a
// container that may not open the memory of another one, NCCL without a network), the whole group
// falls back to the host's memory, and `warn` gets the reason at every rank (tried_communicator.h).
// A path that a member demands (CommMember::wants) is used without a trial; if it fails, the group
// is broken, and the error names the path and the rank. No call waits longer than its deadline. To
// abort or to end a group that still tries its path takes some milliseconds, or what the path takes
// to break off what is under way.
//
// Rings. Connect makes the link to a process and, where a path by CUDA IPC or NCCL should work,
// tries it once for the pair, which makes the pair's lanes over NCCL (lane_fabric.h). The answer is
// final: a pair whose trial failed goes through the host until one of its processes starts again. A
// ring uses the path if it works for each of its pairs: its members tell each other so in one
// exchange without data, at its first call. The path over NCCL is tried for all pairs of a pool
// that spans nodes, since rings mix the nodes.
//
// Buffers lie in the memory of `device`, and calls are ordered with its work as device_fabric.h
// says, on every path; without a device they lie in the host's memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/paths/comm_ledger.h"
#include "engine/comm/paths/comm_path.h"
#include "engine/comm/ring_fabric.h"
#include "engine/device/copy_stream.h"
#include "engine/device/device.h"

namespace skein::engine {

// The fabrics of the paths; null where this machine has none. All share one address, that of
// `host`.
struct CommWays {
  std::shared_ptr<RingFabric> host;   // buffers in the host's memory
  std::shared_ptr<Fabric> ipc;        // in the device's
  std::shared_ptr<Fabric> nccl;       // a communicator for each group
  std::shared_ptr<RingFabric> lanes;  // over NCCL for rings: communicators of pairs, which stay
};

// Where the buffers lie. Null: in the host's memory.
struct CommDevice {
  std::shared_ptr<Device> device;
  std::shared_ptr<CopyStream> copies;  // beside the device's work, for trials
};

struct PathFabricOptions {
  std::function<void(const std::string&)> warn;  // any thread; once for each size, way and reason
  std::chrono::milliseconds trial_max{20'000};   // of a way, once all members are there
  // Of a pair's trial over NCCL, which makes its lanes. Rings that come meanwhile wait trial_max,
  // then go through the host.
  std::chrono::milliseconds lanes_max{120'000};
  // Pairs that may be tried at once, 128 bytes of the device's memory for each. When an instance
  // starts it tries a pair with each of its pool at once.
  int pair_trials_max = 4096;
};

class PathFabric final : public RingFabric {
 public:
  // `self` has a GPU when there is a device, a realm when there is ways.ipc, a version of NCCL when
  // there are ways.nccl and ways.lanes. RESOURCE_EXHAUSTED: no memory on the device for trials.
  static absl::StatusOr<std::unique_ptr<PathFabric>> Make(CommMember self, CommWays ways,
                                                          CommDevice device,
                                                          PathFabricOptions options);
  ~PathFabric() override;

  const std::string& Address() const override { return address_; }

  // INVALID_ARGUMENT also where ChoosePath returns it.
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override;
  absl::Status Connect(const std::string& address) override;
  bool Connected(const std::string& address) const override;
  absl::StatusOr<std::unique_ptr<Communicator>> OpenRing(GroupId name,
                                                         std::span<const std::string> addresses,
                                                         int rank) override;
  FabricCounts Made() const override;

  // Pairs with other processes whose path was tried, or is: one for each path. Those of processes
  // that died are forgotten at the next Connect with another address.
  size_t TriedPairs();

  // Why the bytes of `group`, which this fabric made, go through the host's memory although they
  // are on devices. Empty: they do not, or there are no devices. Known once a call of it was OK.
  // Any thread.
  std::optional<std::string> WhyThroughHost(const Communicator& group) const;

  // Makes groups of the same processes whose buffers lie in the host's memory. Owned by this
  // fabric; its groups are included in Made().
  Fabric* Hosts() { return hosts_.get(); }

  // Makes the groups whose steps the engine's thread runs: by kernels on the device's own stream
  // where `kernels`, set before any, serve them; else as MakeGroup.
  Fabric* StepGroups() { return kernels_ != nullptr ? kernels_.get() : this; }
  void SetKernels(std::unique_ptr<Fabric> kernels) { kernels_ = std::move(kernels); }
  // A group of so many ranks moved bytes by them, which Totals has under CUDA IPC. Any thread.
  void KernelMoved(int ranks, uint64_t bytes) {
    ledger_->Called(ranks, CommPath::kIpc, bytes, /*seconds=*/0);
  }
  // Whether a group of these members takes the path over CUDA IPC, as their addresses say.
  static bool TakesIpc(std::span<const std::string> addresses);

  // What was moved so far. May be called from any thread.
  std::vector<CommTotals> Totals() const { return ledger_->Totals(); }

 private:
  enum class Use { kGroup, kRing, kPair };           // kPair: to try the path of rings
  using PairKey = std::pair<std::string, CommPath>;  // the other end's address
  struct Members;
  struct Tried;
  class Refusal;
  class Cells;
  class HostGroups;

  PathFabric(CommMember self, CommWays ways, CommDevice device, PathFabricOptions options);
  absl::StatusOr<std::unique_ptr<Communicator>> Make(Use use, GroupId id,
                                                     std::span<const std::string> addresses,
                                                     int rank);
  absl::StatusOr<Members> MembersOf(std::span<const std::string> addresses, int rank) const;
  absl::StatusOr<std::unique_ptr<Communicator>> MakeBelow(Use use, CommPath path, GroupId id,
                                                          const Members& members);
  std::unique_ptr<Communicator> OnDevice(CommPath path, std::unique_ptr<Communicator> below);
  absl::StatusOr<Tried> MakeTried(Use use, const PathChoice& choice, GroupId id,
                                  const Members& members);
  bool IsTried(const std::string& address);
  void EndDeadPairs();
  std::vector<std::string> ToTryOverNccl(const std::string& newcomer);
  absl::Status TryPair(const std::string& address, std::optional<CommPath> path);
  absl::StatusOr<std::shared_ptr<Tried>> PairOf(const std::string& address, CommPath path);
  absl::Status PairsWork(CommPath path, const Members& members, CommDeadline deadline,
                         const std::atomic<bool>& left);
  absl::Status Try(Communicator* below, GroupId id, Cells* cells, CommDeadline deadline);
  absl::Status Exchange(Communicator* below, std::span<std::byte> cell, size_t each,
                        std::vector<uint64_t>* words, CommDeadline deadline);
  std::string Refused(CommPath path, int ranks, const absl::Status& why);  // the reason

  const CommMember self_;
  const CommWays ways_;
  const CommDevice on_;
  const PathFabricOptions options_;
  const std::function<void(const std::string&)> warn_;  // each text once
  const std::string address_;
  const std::shared_ptr<CommLedger> ledger_;
  std::unique_ptr<Cells> group_cells_, pair_cells_;
  const std::unique_ptr<Fabric> hosts_;
  std::unique_ptr<Fabric> kernels_;
  std::atomic<uint64_t> groups_made_{0};
  std::mutex mutex_;
  // The pairs whose path was tried, or is. They stay until their process has died.
  std::map<PairKey, std::shared_ptr<Tried>> pairs_;
  uint64_t lost_seen_ = 0;      // of the hosts' links
  bool any_over_nccl_ = false;  // of pairs_: the pool spans nodes
  bool all_over_nccl_ = false;  // the pairs of before that are tried over NCCL, too
};

}  // namespace skein::engine
