// A fabric that can give the bare link of a group, for fabrics that build on another. Internal to
// this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/comm/algorithms/link.h"
#include "engine/comm/ring_fabric.h"

namespace skein::engine {

class LinkFabric : public RingFabric {
 public:
  // As MakeGroup, which puts a LinkCommunicator on it.
  virtual absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id,
                                                         std::span<const std::string> addresses,
                                                         int rank) = 0;

  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) final;
  absl::StatusOr<std::unique_ptr<Communicator>> OpenRing(GroupId name,
                                                         std::span<const std::string> addresses,
                                                         int rank) final;
  FabricCounts Made() const override;

 protected:
  virtual FabricCounts Links() const = 0;  // all but its `groups`

 private:
  std::atomic<uint64_t> groups_{0};
};

}  // namespace skein::engine
