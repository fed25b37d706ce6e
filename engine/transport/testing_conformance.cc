#include "engine/transport/testing_conformance.h"

#include <algorithm>
#include <cstring>

#include "engine/transport/fault_transport.h"
#include "engine/transport/loopback_transport.h"
#include "engine/transport/ucx_transport.h"

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

World UcxWorld(const std::string& name, const std::string& lane, const std::string& tls) {
  return {name, lane, "direct",
          [=] {
            auto transport = MakeUcxTransport({.tls = tls});
            EXPECT_TRUE(transport.ok()) << transport.status();
            return *std::move(transport);
          },
          [=] { return SpawnProcessTarget(tls); }};
}

World FarWorld(const std::string& name, const std::string& lane, const std::string& tls) {
  auto device = std::make_shared<FarDevice>(4 << 20);
  return {name,
          lane,
          "host-staged",
          [=] {
            auto transport = MakeUcxTransport({.tls = tls}, MakeFarCopyStream(device));
            EXPECT_TRUE(transport.ok()) << transport.status();
            return *std::move(transport);
          },
          [=] { return SpawnProcessTarget(tls, /*far=*/true); },
          device};
}

}  // namespace

World MakeWorld(const std::string& name) {
  if (name == "FarSharedMemory") return FarWorld(name, "ring", "self,shm");
  if (name == "FarTcp") return FarWorld(name, "tcp", "self,tcp");
  if (name == "Loopback") return LoopbackWorld();
  if (name == "Faultless") return FaultlessWorld();
  if (name == "UcxSharedMemory") return UcxWorld(name, "mapped+ring", "self,shm");
  return UcxWorld(name, "tcp", "self,tcp");
}

std::string RandomBytes(size_t bytes, std::mt19937_64* random) {
  std::string data(bytes, '\0');
  for (char& c : data) c = static_cast<char>((*random)());
  return data;
}

TransportConformance::TransportConformance() : world_(MakeWorld(GetParam())) {
  NewSource();
  target_ = world_.make_target();
  peer_ = Connected(target_->Describe());
}

void TransportConformance::NewSource() {
  source_ = world_.make_source();
  void* const base = world_.device ? world_.device->Alloc(kSourceBytes).value() : nullptr;
  auto region = source_->Register(base, kSourceBytes);
  EXPECT_TRUE(region.ok()) << region.status();
  memory_ = *region;
  std::memset(Near(0), 0, memory_.bytes);
}

std::byte* TransportConformance::Near(size_t offset) const {
  std::byte* const place = memory_.base + offset;
  return world_.device ? world_.device->NearOf(place) : place;
}

void TransportConformance::FillSource(size_t offset, const std::string& data) {
  std::memcpy(Near(offset), data.data(), data.size());
}

std::string TransportConformance::SourceBytes(size_t offset, size_t bytes) const {
  return std::string(reinterpret_cast<const char*>(Near(offset)), bytes);
}

Peer TransportConformance::Connected(const std::string& description) {
  auto peer = source_->Connect(description);
  EXPECT_TRUE(peer.ok()) << peer.status();
  return peer.ok() ? *peer : Peer{};
}

TransferId TransportConformance::Posted(TransferOp op, const std::vector<TransferPiece>& pieces,
                                        std::chrono::nanoseconds timeout) {
  auto id = source_->Post(peer_.id, op, pieces, timeout);
  EXPECT_TRUE(id.ok()) << id.status();
  return id.ok() ? *id : TransferId{};
}

std::map<TransferId, TransferCompletion> TransportConformance::Ended(
    const std::vector<TransferId>& ids) {
  std::map<TransferId, TransferCompletion> ended;
  std::vector<TransferCompletion> batch;
  while (ended.size() < ids.size()) {
    batch.clear();
    if (source_->Poll(7, kLong, &batch) == 0) break;
    for (auto& completion : batch) {
      EXPECT_TRUE(std::find(ids.begin(), ids.end(), completion.id) != ids.end());
      EXPECT_TRUE(ended.emplace(completion.id, completion).second) << "completed twice";
    }
  }
  EXPECT_EQ(ended.size(), ids.size());
  return ended;
}

void TransportConformance::PollUntilBroken() {
  std::vector<TransferCompletion> none;
  while (!source_->Inspect(peer_.id)->broken) source_->Poll(0, std::chrono::seconds(1), &none);
}

INSTANTIATE_TEST_SUITE_P(All, TransportConformance,
                         testing::Values("Loopback", "Faultless", "UcxSharedMemory", "UcxTcp",
                                         "FarSharedMemory", "FarTcp"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(All, TransportOfProcesses,
                         testing::Values("UcxSharedMemory", "UcxTcp", "FarSharedMemory", "FarTcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace skein::engine
