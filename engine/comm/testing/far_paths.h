// For tests: PathFabrics of ranks on FarDevices, all in this process, whose ways work or fail as
// the test likes. Their ipc is that of PeerLinks between the devices; their nccl is that of lanes
// for rings (far_lanes.h), and for groups moves what the memory holds at the time of the call
// (near_fabric.h); all over UCX's shared memory.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/paths/path_fabric.h"
#include "engine/comm/testing/far_lanes.h"
#include "engine/device/testing/far_device.h"

namespace skein::engine {

// What is wrong with the fast ways at one rank.
enum class FarFault {
  kNone,
  kMayNotOpen,   // ipc: other ranks' memory
  kCannotBegin,  // no group can be made
  kHangs,        // calls wait for their deadlines
  kWrongBytes,   // come
};

struct FarPaths {
  CommMember self;  // with a GPU; a realm and a version of NCCL make these ways
  FarFault fault = FarFault::kNone;
  PathFabricOptions options;
  std::shared_ptr<FarLaneHub> lanes;  // null: one that all without share
  // Of the hosts. Over tcp the end of a fabric looks to others like that of its process.
  std::string tls = "self,shm";
};

struct FarPathFabric {
  std::shared_ptr<FarDevice> device;
  std::unique_ptr<PathFabric> fabric;
};

FarPathFabric MakeFarPaths(const FarPaths& paths);

// The same behind buffers of the host.
std::unique_ptr<Fabric> MakeBufferedFarPaths(const FarPaths& paths);

}  // namespace skein::engine
