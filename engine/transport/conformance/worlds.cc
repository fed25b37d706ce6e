// The worlds of the conformance suite that need no GPU:
//  - Loopback, and Faultless (the same behind a decorator with no faults to inject, which must not
//  be
//    noticed);
//  - UcxSharedMemory, UcxTcp;
//  - UcxRma: UCX carries everything: region 0 by RMA over its own shared memory, region 1, which it
//    cannot map, by its messages;
//  - FarSharedMemory, FarTcp: from one device into another, neither of which UCX can reach: through
//    staging memory on both sides;
//  - FarDirect, FarMixed: from one device straight into another's memory; of FarMixed only one
//    region is a device's.
#include "engine/device/testing/far_peer_opener.h"
#include "engine/transport/conformance/conformance.h"
#include "engine/transport/loopback_transport.h"
#include "engine/transport/testing/fault_transport.h"
#include "engine/transport/testing/testing_options.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

World LoopbackWorld() {
  auto fabric = MakeLoopbackFabric();
  return {"Loopback", "loopback", "direct", [=] { return MakeLoopbackTransport(fabric); },
          [=] { return std::make_unique<InProcessTarget>(MakeLoopbackTransport(fabric)); }};
}

World FaultlessWorld() {
  auto fabric = MakeLoopbackFabric();
  return {"Faultless", "loopback", "direct",
          [fabric] {
            return std::make_unique<FaultTransport>(
                MakeLoopbackTransport(fabric), [](uint64_t, PeerId) { return TransferFault{}; });
          },
          [fabric] { return std::make_unique<InProcessTarget>(MakeLoopbackTransport(fabric)); }};
}

World UcxWorld(const std::string& name, const std::string& transport, const std::string& tls) {
  return {name, transport, "direct",
          [=] {
            auto transport = MakeUcxTransport(TestingOptions(tls));
            EXPECT_TRUE(transport.ok()) << transport.status();
            return *std::move(transport);
          },
          [=] { return SpawnProcessTarget(tls); }};
}

World FarWorld(const std::string& name, const std::string& transport, const std::string& tls,
               TargetMemory memory) {
  auto device = std::make_shared<FarDevice>(4 << 20);
  const bool direct = IsShared(memory);
  return {name,
          transport,
          direct ? "direct" : "host-staged",
          [=] {
            auto transport = MakeUcxTransport(TestingOptions(tls), MakeFarCopyStream(device),
                                              direct ? MakeFarPeerOpener(device) : nullptr);
            EXPECT_TRUE(transport.ok()) << transport.status();
            return *std::move(transport);
          },
          [=] { return SpawnProcessTarget(tls, memory); },
          device};
}

std::string NameOfWorld(const testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace

World MakeWorld(const std::string& name) {
  using enum TargetMemory;
  if (name == "Loopback") return LoopbackWorld();
  if (name == "Faultless") return FaultlessWorld();
  if (name == "UcxSharedMemory") return UcxWorld(name, "mapped+ring", "self,shm");
  if (name == "UcxRma") return UcxWorld(name, "rma+posix", "ucx:self,posix");
  if (name == "UcxTcp") return UcxWorld(name, "tcp", "self,tcp");
  if (name == "FarSharedMemory") return FarWorld(name, "ring", "self,shm", kHostAndDevice);
  if (name == "FarTcp") return FarWorld(name, "tcp", "self,tcp", kHostAndDevice);
  if (name == "FarDirect") return FarWorld(name, "far-ipc", "self,shm", kAllocation);
  SKEIN_CHECK(name == "FarMixed");
  return FarWorld(name, "far-ipc", "self,shm", kDeviceAndHost);
}

INSTANTIATE_TEST_SUITE_P(All, TransportConformance,
                         testing::Values("Loopback", "Faultless", "UcxSharedMemory", "UcxRma",
                                         "UcxTcp", "FarSharedMemory", "FarTcp", "FarDirect",
                                         "FarMixed"),
                         NameOfWorld);

// Not FarDirect: nothing there waits for the target.
INSTANTIATE_TEST_SUITE_P(All, TransportOfProcesses,
                         testing::Values("UcxSharedMemory", "UcxRma", "UcxTcp", "FarSharedMemory",
                                         "FarTcp", "FarMixed"),
                         NameOfWorld);

}  // namespace skein::engine
