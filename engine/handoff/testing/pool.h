// For tests: the KV pool of one instance behind a transport of any kind.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/device/testing/far_device.h"
#include "engine/device/testing/far_peer_opener.h"
#include "engine/kv/kv_spec.h"
#include "engine/transport/loopback_transport.h"
#include "engine/transport/transport.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "gtest/gtest.h"
#include "scheduler/vocabulary/block_id.h"

namespace skein::engine {

// kFar: UCX, and a pool in a device that it cannot reach (far_device.h). kFarDirect: the devices
// reach one another.
enum class PoolKind { kLoopback, kUcx, kFar, kFarDirect };

inline std::string NameOf(PoolKind kind) {
  if (kind == PoolKind::kLoopback) return "Loopback";
  if (kind == PoolKind::kUcx) return "Ucx";
  return kind == PoolKind::kFar ? "Far" : "FarDirect";
}

inline bool IsFar(PoolKind kind) { return kind == PoolKind::kFar || kind == PoolKind::kFarDirect; }

// Transports of one kind that reach one another.
class TestingNetwork {
 public:
  explicit TestingNetwork(PoolKind kind) : kind_(kind) {}

  PoolKind kind() const { return kind_; }

  // `device` is null unless IsFar.
  std::unique_ptr<Transport> Make(const std::shared_ptr<FarDevice>& device) {
    if (kind_ == PoolKind::kLoopback) return MakeLoopbackTransport(fabric_);
    auto transport =
        MakeUcxTransport({}, device ? MakeFarCopyStream(device) : nullptr,
                         kind_ == PoolKind::kFarDirect ? MakeFarPeerOpener(device) : nullptr);
    EXPECT_TRUE(transport.ok()) << transport.status();
    return *std::move(transport);
  }

 private:
  const PoolKind kind_;
  const std::shared_ptr<LoopbackFabric> fabric_ = MakeLoopbackFabric();
};

struct TestingPool {
  TestingPool(TestingNetwork* network, const KvSpec& kv) : spec(kv) {
    const auto layer_bytes = static_cast<size_t>(spec.num_blocks * spec.BlockBytes());
    const auto layers = static_cast<size_t>(spec.num_layers);
    if (IsFar(network->kind())) {
      device = std::make_shared<FarDevice>(layers * (layer_bytes + 4096));
      copies = MakeFarCopyStream(device);
    }
    transport = network->Make(device);
    for (size_t layer = 0; layer < layers; ++layer) {
      const auto region =
          transport->Register(device ? device->Alloc(layer_bytes).value() : nullptr, layer_bytes);
      EXPECT_TRUE(region.ok()) << region.status();
      regions.push_back(region->id);
      kv_regions.push_back({region->base, static_cast<int64_t>(region->bytes)});
    }
    description = *transport->Describe(regions);
  }

  // Where the test reads and writes it.
  std::byte* Block(int layer, BlockId block) const {
    auto* const place = static_cast<std::byte*>(kv_regions[static_cast<size_t>(layer)].base) +
                        block.value * spec.BlockBytes();
    return device ? device->NearOf(place) : place;
  }

  KvSpec spec;
  std::shared_ptr<FarDevice> device;   // IsFar
  std::shared_ptr<CopyStream> copies;  // the same
  std::unique_ptr<Transport> transport;
  std::vector<RegionId> regions;
  std::vector<KvRegion> kv_regions;
  std::string description;
};

// A prompt's KV in layout TP 1: [layer][block][byte].
using PromptKv = std::vector<std::vector<std::vector<std::byte>>>;

inline PromptKv RandomKv(const KvSpec& spec, int64_t blocks, std::mt19937_64* random) {
  PromptKv kv(static_cast<size_t>(spec.num_layers));
  for (auto& layer : kv) {
    layer.resize(static_cast<size_t>(blocks));
    for (auto& block : layer) {
      block.resize(static_cast<size_t>(spec.BlockBytes()));
      for (std::byte& byte : block) byte = static_cast<std::byte>((*random)());
    }
  }
  return kv;
}

// `count` different blocks of `limit`, in random order.
inline std::vector<BlockId> RandomBlocks(int64_t count, int64_t limit, std::mt19937_64* random) {
  std::vector<BlockId> all(static_cast<size_t>(limit));
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<int32_t>(i)};
  std::shuffle(all.begin(), all.end(), *random);
  all.resize(static_cast<size_t>(count));
  return all;
}

}  // namespace skein::engine
