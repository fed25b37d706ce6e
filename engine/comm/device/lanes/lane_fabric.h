// The Fabric of rings whose messages go by lanes. Internal to engine/comm.
//
// Of each pair of processes two lanes are made when a ring first uses the pair, more only when more
// rings use it at once, or after a failure (lane_book.h). Made().groups counts them, too. A process
// that died is forgotten, with its lanes, when a ring with it fails, or when the next ring ends.
//
// What it costs: over NCCL a lane is a communicator of two ranks, with NCCL's buffers on the GPU
// and threads. In a pool of N instances each has 2 (N - 1) of them: 126 of 64 instances, 2,046 of
// 1,024. One communicator of the whole pool would not do: it cannot lose a member, and one exchange
// on it cannot be broken off alone. So it is meant for pools of some dozens of instances.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/comm/algorithms/link_fabric.h"
#include "engine/comm/device/lanes/lane_book.h"

namespace skein::engine {

class LaneFabric : public LinkFabric {
 public:
  // `hosts` may serve other fabrics, too: its address is this one's.
  LaneFabric(std::shared_ptr<LinkFabric> hosts, std::shared_ptr<LaneMaker> maker);
  ~LaneFabric() override;

  const std::string& Address() const override { return hosts_->Address(); }
  absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id, std::span<const std::string> addresses,
                                                 int rank) override;
  absl::Status Connect(const std::string& address) override { return hosts_->Connect(address); }
  bool Connected(const std::string& address) const override { return hosts_->Connected(address); }
  FabricCounts Made() const override;

 protected:
  FabricCounts Links() const override { return hosts_->Made(); }

 private:
  struct State;

  const std::shared_ptr<LinkFabric> hosts_;
  const std::shared_ptr<State> state_;  // its links', too
};

}  // namespace skein::engine
