// For tests: the fabric of PeerLinks between FarDevices of one process.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "engine/comm/fabric.h"
#include "engine/device/testing/far_device.h"

namespace skein::engine {

class LinkFabric;
class PeerMemory;

// What this rank's driver says when it is to open another rank's memory.
using MayOpen = std::function<absl::Status()>;

// A stream of its own beside the device's: what is started runs at Finish. `may_open` null: it may.
std::unique_ptr<PeerMemory> MakeFarPeerMemory(std::shared_ptr<FarDevice> device,
                                              MayOpen may_open = nullptr);

// `device` is where this rank's buffers lie; the hosts' link is UCX's over shared memory.
std::unique_ptr<Fabric> MakeFarPeerFabric(std::shared_ptr<FarDevice> device);
// Over `hosts`, whose address it shares. `may_open` null: it may.
std::unique_ptr<Fabric> MakeFarPeerFabric(std::shared_ptr<LinkFabric> hosts,
                                          std::shared_ptr<FarDevice> device, MayOpen may_open);

}  // namespace skein::engine
