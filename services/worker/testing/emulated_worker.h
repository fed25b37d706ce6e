// The engine of a worker whose device is emulated, for tests and benches of shells and services.
#pragma once

#include <memory>

#include "engine/emulated/emulated_engine.h"
#include "engine/emulated/faulty_engine.h"
#include "engine/transport/loopback_transport.h"
#include "services/worker/engine/worker_engine.h"

namespace skein::services::testing {

// Its own transport reaches nobody else.
inline WorkerEngine EmulatedWorker(const engine::EmulatedOptions& options,
                                   const engine::Faults& faults = {}) {
  WorkerEngine out;
  out.transport = engine::MakeLoopbackTransport(engine::MakeLoopbackFabric());
  out.engine =
      std::make_unique<engine::FaultyEngine>(*engine::EmulatedEngine::Create(options), faults);
  for (const engine::KvRegion& region : out.engine->KvRegions()) {
    out.regions.push_back(
        out.transport->Register(region.base, static_cast<size_t>(region.bytes))->id);
  }
  out.description = *out.transport->Describe(out.regions);
  return out;
}

// 2 layers of 1 KV head, blocks of 16 tokens.
inline WorkerEngine EmulatedWorker(int num_blocks = 256, int max_positions = 4096,
                                   const engine::Faults& faults = {}) {
  engine::EmulatedOptions options;
  options.max_positions = max_positions;
  options.kv = {{.num_layers = 2,
                 .kv_heads = 1,
                 .head_dim = 8,
                 .block_tokens = 16,
                 .dtype = engine::DType::kF32},
                num_blocks};
  return EmulatedWorker(options, faults);
}

}  // namespace skein::services::testing
