#include "bench/comm/handshake_target.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "bench/comm/staging_service.h"
#include "engine/device/cpu_device.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/transport/registered_device.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/rpc/rpc.h"
#include "services/worker/decode/decode_service.h"
#include "services/worker/decode/decode_shell.h"

namespace skein::bench {
namespace {

services::WorkerEngine MakeEngine(const HandshakeShape& shape) {
  services::WorkerEngine out;
  auto transport = engine::MakeUcxTransport({});
  SKEIN_CHECK_MSG(transport.ok(), transport.status().ToString().c_str());
  out.transport = *std::move(transport);
  auto device =
      std::make_shared<engine::RegisteredDevice>(out.transport.get(), engine::MakeCpuDevice());
  engine::EmulatedOptions options;
  options.kv = shape.kv;
  options.kv.num_blocks *= 2;  // an ended prompt may still hold its blocks for a moment
  options.max_positions = static_cast<int>(options.kv.num_blocks) * options.kv.block_tokens;
  options.device = device;
  auto engine = engine::EmulatedEngine::Create(options);
  SKEIN_CHECK_MSG(engine.ok(), engine.status().ToString().c_str());
  out.engine = *std::move(engine);
  for (const engine::KvRegion& region : out.engine->KvRegions()) {
    std::memset(region.base, 1, static_cast<size_t>(region.bytes));
    out.regions.push_back(device->RegionAt(region.base));
  }
  out.description = *out.transport->Describe(out.regions);
  return out;
}

scheduler::DecodeConfig ConfigOf(const services::WorkerEngine& engine) {
  scheduler::DecodeConfig config;
  config.membership.identity.role = scheduler::Role::kDecode;
  config.membership.identity.model = "m";
  config.membership.identity.endpoint = "127.0.0.1:1";
  config.membership.identity.incarnation = {1};
  config.membership.identity.shape = services::ShapeOf(engine.engine->Spec());
  config.membership.identity.total_blocks = engine.engine->Spec().kv.num_blocks;
  config.memory = engine.description;
  config.max_requests = 1 << 20;
  return config;
}

}  // namespace

void RunHandshakeTarget(const HandshakeShape& shape, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  services::WorkerEngine engine = MakeEngine(shape);
  const auto pool = engine.engine->KvRegions();
  auto receiver = engine::StagingReceiver::Create(engine.transport.get(), engine.engine->Spec().kv,
                                                  pool, shape.writers_max, shape.slots);
  SKEIN_CHECK_MSG(receiver.ok(), receiver.status().ToString().c_str());
  services::DecodeShell shell(&engine, "127.0.0.1:1", 1024);  // there is no orchestrator
  StagingService staging(*std::move(receiver), [&shell](const std::string& order) {
    v1::AnnounceRequest announce;
    SKEIN_CHECK(announce.ParseFromString(order));
    shell.Post(scheduler::AnnounceCalled{*services::FromProto(announce), {}});
  });
  services::DecodeService decode(&shell);
  const auto server = services::ServeRpc("127.0.0.1:0", {&decode, &staging});
  SKEIN_CHECK_MSG(server.ok(), server.status().ToString().c_str());
  shell.Start(ConfigOf(engine), [] {});
  SKEIN_CHECK(write(out, &server->port, sizeof server->port) == sizeof server->port);
  for (;;) pause();
}

}  // namespace skein::bench
