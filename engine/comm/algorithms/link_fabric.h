// A fabric that can give the bare link of a group, for fabrics that build on another. Internal to
// this folder.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/comm/algorithms/link.h"
#include "engine/comm/fabric.h"

namespace skein::engine {

class LinkFabric : public Fabric {
 public:
  // As MakeGroup, which puts a LinkCommunicator on it.
  virtual absl::StatusOr<std::unique_ptr<Link>> MakeLink(GroupId id,
                                                         std::span<const std::string> addresses,
                                                         int rank) = 0;

  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) final;
};

}  // namespace skein::engine
