// The contract of transport.h, run by every implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/far_device.h"
#include "engine/transport/description.h"
#include "engine/transport/fault_transport.h"
#include "engine/transport/loopback_transport.h"
#include "engine/transport/testing_target.h"
#include "engine/transport/ucx_transport.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = 60s;  // a timeout that no healthy transfer meets
constexpr size_t kSourceBytes = 1 << 20;

// One implementation: how to make the source, and targets that it can reach.
struct World {
  std::string name;
  std::string lane;  // expected in PeerInfo::lanes
  std::string path;  // and as PeerInfo::path
  std::function<std::unique_ptr<Transport>()> make_source;
  std::function<std::unique_ptr<TestingTarget>()> make_target;
  std::shared_ptr<FarDevice> device = nullptr;  // where the source's memory lies
};

World LoopbackWorld() {
  auto fabric = MakeLoopbackFabric();
  return {"Loopback", "loopback", "direct", [=] { return MakeLoopbackTransport(fabric); },
          [=] { return std::make_unique<InProcessTarget>(MakeLoopbackTransport(fabric)); }};
}

// A decorator with no faults to inject must not be noticed.
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

// From one device into another, neither of which UCX can reach: through staging memory on both
// sides.
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

class TransportConformance : public testing::TestWithParam<const char*> {
 protected:
  TransportConformance() : world_(MakeWorld(GetParam())) {
    NewSource();
    target_ = world_.make_target();
    peer_ = Connected(target_->Describe());
  }

  void NewSource() {
    source_ = world_.make_source();
    void* const base = world_.device ? world_.device->Alloc(kSourceBytes).value() : nullptr;
    auto region = source_->Register(base, kSourceBytes);
    EXPECT_TRUE(region.ok()) << region.status();
    memory_ = *region;
    std::memset(Near(0), 0, memory_.bytes);
  }

  // Where the test reads and writes the source's memory.
  std::byte* Near(size_t offset) const {
    std::byte* const place = memory_.base + offset;
    return world_.device ? world_.device->NearOf(place) : place;
  }

  Peer Connected(const std::string& description) {
    auto peer = source_->Connect(description);
    EXPECT_TRUE(peer.ok()) << peer.status();
    return peer.ok() ? *peer : Peer{};
  }

  TransferPiece Piece(size_t region, size_t local, size_t remote, size_t bytes) const {
    return {memory_.id, local, peer_.regions.at(region), remote, bytes};
  }

  TransferId Posted(TransferOp op, const std::vector<TransferPiece>& pieces,
                    std::chrono::nanoseconds timeout = kLong) {
    auto id = source_->Post(peer_.id, op, pieces, timeout);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : TransferId{};
  }

  // The one completion of each of `ids`; fails on any other.
  std::map<TransferId, TransferCompletion> Ended(const std::vector<TransferId>& ids) {
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

  absl::Status EndOf(TransferId id) { return Ended({id})[id].status; }
  absl::Status Run(TransferOp op, const std::vector<TransferPiece>& pieces) {
    return EndOf(Posted(op, pieces));
  }

  void FillSource(size_t offset, const std::string& data) {
    std::memcpy(Near(offset), data.data(), data.size());
  }
  std::string SourceBytes(size_t offset, size_t bytes) const {
    return std::string(reinterpret_cast<const char*>(Near(offset)), bytes);
  }

  // Polls until the peer was found dead; a peer that never is hangs, and the test's own limit ends
  // it.
  void PollUntilBroken() {
    std::vector<TransferCompletion> none;
    while (!source_->Inspect(peer_.id)->broken) source_->Poll(0, 1s, &none);
  }

  World world_;
  std::unique_ptr<Transport> source_;
  Region memory_;
  std::unique_ptr<TestingTarget> target_;
  Peer peer_;
  std::mt19937_64 random_{20261121};
};

TEST_P(TransportConformance, PutArrives) {
  for (size_t region : {0u, 1u}) {
    const std::string data = RandomBytes(200 << 10, &random_);
    FillSource(100, data);
    auto id = Posted(TransferOp::kPut, {Piece(region, 100, 33, data.size())});
    auto end = Ended({id})[id];
    ASSERT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(end.bytes, data.size());
    EXPECT_TRUE(target_->Read(region, 33, data.size()) == data);
    EXPECT_EQ(target_->Read(region, 0, 33), std::string(33, '\0'));
  }
}

TEST_P(TransportConformance, GetFetches) {
  for (size_t region : {0u, 1u}) {
    const std::string data = RandomBytes(200 << 10, &random_);
    target_->Write(region, 50, data);
    auto status = Run(TransferOp::kGet, {Piece(region, 7, 50, data.size())});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(SourceBytes(7, data.size()) == data);
  }
}

// OK must mean visible at once to a reader that hears of it over another channel.
TEST_P(TransportConformance, OkMeansVisible) {
  for (int i = 0; i < 200; ++i) {
    const size_t region = i % 2;
    const std::string data = RandomBytes(1 + random_() % 5000, &random_);
    FillSource(0, data);
    ASSERT_TRUE(Run(TransferOp::kPut, {Piece(region, 0, i, data.size())}).ok());
    ASSERT_TRUE(target_->Read(region, i, data.size()) == data) << i;
  }
}

// Random scattered puts and gets against a model of both memories.
TEST_P(TransportConformance, RandomScatterGatherMatchesAModel) {
  constexpr size_t kCell = 1000;  // pieces lie in cells, so that they never overlap
  constexpr size_t kCells = 200;
  std::string local = RandomBytes(kSourceBytes, &random_);
  FillSource(0, local);
  std::string remote[2];
  for (size_t r : {0u, 1u}) {
    remote[r] = RandomBytes(kTargetRegionBytes[r], &random_);
    target_->Write(r, 0, remote[r]);
  }
  for (int round = 0; round < 40; ++round) {
    const TransferOp op = random_() % 3 == 0 ? TransferOp::kGet : TransferOp::kPut;
    const size_t region = random_() % 2;
    std::vector<size_t> from(kCells), to(kCells);
    for (size_t i = 0; i < kCells; ++i) from[i] = to[i] = i;
    std::shuffle(from.begin(), from.end(), random_);
    if (random_() % 2 == 0) std::shuffle(to.begin(), to.end(), random_);
    std::vector<TransferPiece> pieces;
    for (size_t i = 0, n = random_() % kCells; i < n; ++i) {
      const bool whole = random_() % 2 == 0;
      const size_t bytes = whole ? kCell : random_() % kCell;
      const size_t l = from[i] * kCell + (kCell - bytes) / 2;
      const size_t r = to[i] * kCell + (whole ? 0 : random_() % (kCell - bytes));
      pieces.push_back(Piece(region, l, r, bytes));
      if (op == TransferOp::kPut) remote[region].replace(r, bytes, local, l, bytes);
      if (op == TransferOp::kGet) local.replace(l, bytes, remote[region], r, bytes);
    }
    ASSERT_TRUE(Run(op, pieces).ok());
  }
  EXPECT_TRUE(SourceBytes(0, kSourceBytes) == local);
  for (size_t r : {0u, 1u}) EXPECT_TRUE(target_->Read(r, 0, remote[r].size()) == remote[r]);
}

// Fragments of every size, of both regions in turn, more than any wire takes at once.
TEST_P(TransportConformance, ScattersManyFragmentsInOneTransfer) {
  FillSource(0, RandomBytes(kSourceBytes, &random_));
  std::string remote[2];
  for (size_t r : {0u, 1u}) remote[r].assign(kTargetRegionBytes[r], '\0');
  std::vector<TransferPiece> pieces;
  size_t local = 0;
  size_t next[2] = {0, 0};
  const size_t sizes[] = {1, 4096, 17, 4096, 60 << 10, 3, 64 << 10, 300};
  for (size_t i = 0; i < 2000; ++i) {
    const size_t r = random_() % 2;
    const size_t bytes = i < std::size(sizes) ? sizes[i] : 1 + random_() % 400;
    if (next[r] + bytes > kTargetRegionBytes[r] || local + bytes > kSourceBytes) continue;
    pieces.push_back(Piece(r, local, next[r], bytes));
    remote[r].replace(next[r], bytes, SourceBytes(local, bytes));
    local += bytes + random_() % 2;
    next[r] += bytes + random_() % 2;
  }
  std::shuffle(pieces.begin(), pieces.end(), random_);
  const TransferId id = Posted(TransferOp::kPut, pieces);
  auto end = Ended({id})[id];
  ASSERT_TRUE(end.status.ok()) << end.status;
  size_t bytes = 0;
  for (const TransferPiece& piece : pieces) bytes += piece.bytes;
  EXPECT_EQ(end.bytes, bytes);
  for (size_t r : {0u, 1u}) EXPECT_TRUE(target_->Read(r, 0, remote[r].size()) == remote[r]);
}

TEST_P(TransportConformance, ManyTransfersEachEndOnceAndInOrder) {
  std::vector<TransferId> ids;
  for (size_t i = 0; i < 300; ++i) {
    ids.push_back(Posted(TransferOp::kPut, {Piece(0, i * 512, i * 512, 512)}));
  }
  std::vector<TransferCompletion> out;
  while (out.size() < ids.size() && source_->Poll(16, kLong, &out) > 0) {
  }
  ASSERT_EQ(out.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(out[i].id, ids[i]);
    EXPECT_TRUE(out[i].status.ok()) << out[i].status;
  }
}

TEST_P(TransportConformance, PollReturnsAtMostMax) {
  std::vector<TransferId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Posted(TransferOp::kPut, {Piece(0, 0, 0, 8)}));
  std::vector<TransferCompletion> out;
  while (out.size() < 5) {
    EXPECT_LE(source_->Poll(2, kLong, &out), 2u);
  }
}

TEST_P(TransportConformance, NothingToMoveCompletes) {
  EXPECT_TRUE(Run(TransferOp::kPut, {}).ok());
  EXPECT_TRUE(Run(TransferOp::kGet, {Piece(0, 5, 5, 0)}).ok());
}

TEST_P(TransportConformance, RefusesPiecesOutsideTheirRegions) {
  const auto refused = [&](const TransferPiece& piece) {
    const std::vector<TransferPiece> pieces = {Piece(0, 0, 0, 1), piece};
    const auto status = source_->Post(peer_.id, TransferOp::kPut, pieces, kLong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(std::string(status.message()).find("piece 1"), std::string::npos) << status;
  };
  refused(Piece(0, kSourceBytes, 0, 1));
  refused(Piece(0, 1, 0, kSourceBytes));
  refused(Piece(1, 0, kTargetRegionBytes[1] - 1, 2));
  refused(Piece(0, UINT64_MAX, 0, 2));
  refused(Piece(0, 0, 8, UINT64_MAX - 4));
  EXPECT_EQ(target_->Read(0, 0, 1), std::string(1, '\0'));
}

// The target checks for itself: a description that promises more than there is harms nobody.
TEST_P(TransportConformance, TheTargetRefusesFragmentsOutsideItsRegions) {
  auto forged = ParseDescription(target_->Describe());
  ASSERT_TRUE(forged.ok()) << forged.status();
  const size_t beyond = kTargetRegionBytes[1];
  forged->regions[1].bytes += 64 << 10;
  auto forger = world_.make_source();
  auto region = forger->Register(nullptr, 64 << 10);
  auto peer = forger->Connect(SerializeDescription(*forged));
  ASSERT_TRUE(region.ok() && peer.ok());
  for (const TransferOp op : {TransferOp::kPut, TransferOp::kGet}) {
    const TransferPiece pieces[] = {{region->id, 0, peer->regions[1], 0, 100},
                                    {region->id, 200, peer->regions[1], beyond - 50, 100},
                                    {region->id, 400, peer->regions[1], 1000, 100}};
    ASSERT_TRUE(forger->Post(peer->id, op, pieces, kLong).ok());
    std::vector<TransferCompletion> out;
    ASSERT_EQ(forger->Poll(1, kLong, &out), 1u);
    EXPECT_TRUE(absl::IsUnavailable(out[0].status)) << out[0].status;
  }
  FillSource(0, "unharmed");
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, beyond - 8, 8)}).ok());
  EXPECT_EQ(target_->Read(1, beyond - 8, 8), "unharmed");
}

TEST_P(TransportConformance, UnknownIdsAreNotFound) {
  EXPECT_TRUE(absl::IsNotFound(source_->Unregister(RegionId{999})));
  EXPECT_TRUE(absl::IsNotFound(source_->Disconnect(PeerId{999})));
  EXPECT_TRUE(absl::IsNotFound(source_->Inspect(PeerId{999}).status()));
  const RegionId unknown[] = {RegionId{999}};
  EXPECT_TRUE(absl::IsNotFound(source_->Describe(unknown).status()));
  EXPECT_TRUE(absl::IsNotFound(source_->Post(PeerId{999}, TransferOp::kPut, {}, kLong).status()));
  const TransferPiece piece[] = {{memory_.id, 0, RegionId{999}, 0, 1}};
  EXPECT_TRUE(absl::IsNotFound(source_->Post(peer_.id, TransferOp::kPut, piece, kLong).status()));
  source_->Cancel(TransferId{999});
}

TEST_P(TransportConformance, RegisterRefusesWhatCannotBe) {
  EXPECT_TRUE(absl::IsInvalidArgument(source_->Register(memory_.base, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(source_->Register(memory_.base, SIZE_MAX).status()));
}

TEST_P(TransportConformance, RegisteringTwiceGivesTwoRegions) {
  std::vector<std::byte> own(4096, std::byte{7});
  auto first = source_->Register(own.data(), own.size());
  auto second = source_->Register(own.data(), own.size());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->id, second->id);
  ASSERT_TRUE(source_->Unregister(first->id).ok());
  EXPECT_TRUE(absl::IsNotFound(source_->Unregister(first->id)));
  EXPECT_TRUE(Run(TransferOp::kPut, {{second->id, 0, peer_.regions[1], 64, 4096}}).ok());
  EXPECT_EQ(target_->Read(1, 64, 4096), std::string(4096, '\7'));
  EXPECT_TRUE(source_->Unregister(second->id).ok());
}

TEST_P(TransportConformance, UnregisterWaitsForTransfers) {
  auto region = source_->Register(nullptr, 4096);
  ASSERT_TRUE(region.ok());
  const TransferId id = Posted(TransferOp::kPut, {{region->id, 0, peer_.regions[0], 0, 4096}});
  EXPECT_TRUE(absl::IsFailedPrecondition(source_->Unregister(region->id)));
  EXPECT_TRUE(EndOf(id).ok());
  EXPECT_TRUE(source_->Unregister(region->id).ok());
}

TEST_P(TransportConformance, CancelBeforePollMovesNothing) {
  FillSource(0, "unwanted");
  const TransferId id = Posted(TransferOp::kPut, {Piece(0, 0, 0, 8)});
  source_->Cancel(id);
  source_->Cancel(id);
  EXPECT_TRUE(absl::IsCancelled(EndOf(id)));
  source_->Cancel(id);
  EXPECT_TRUE(Run(TransferOp::kPut, {Piece(0, 8, 8, 8)}).ok());
  EXPECT_EQ(target_->Read(0, 0, 8), std::string(8, '\0'));
}

TEST_P(TransportConformance, CancelsAmongRunningTransfersEndEachOnce) {
  std::vector<TransferId> ids;
  std::vector<TransferCompletion> out;
  for (int i = 0; i < 200; ++i) {
    ids.push_back(Posted(TransferOp::kPut, {Piece(i % 2, 0, 0, 200 << 10)}));
    if (random_() % 2 == 0) source_->Poll(1, 0ns, &out);
    if (random_() % 2 == 0) source_->Cancel(ids[random_() % ids.size()]);
  }
  while (out.size() < ids.size() && source_->Poll(100, kLong, &out) > 0) {
  }
  std::map<TransferId, absl::Status> ends;
  for (auto& completion : out) ends[completion.id] = completion.status;
  EXPECT_EQ(ends.size(), ids.size());
  EXPECT_EQ(out.size(), ids.size());
  for (auto& [id, status] : ends) EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  EXPECT_FALSE(source_->Inspect(peer_.id)->broken);
}

TEST_P(TransportConformance, AnOverdueTransferEndsWithDeadlineExceeded) {
  const TransferId id = Posted(TransferOp::kPut, {Piece(0, 0, 0, 8)}, 0ns);
  EXPECT_TRUE(absl::IsDeadlineExceeded(EndOf(id)));
  EXPECT_FALSE(source_->Inspect(peer_.id)->broken);  // nothing was on the wire
  EXPECT_TRUE(Run(TransferOp::kPut, {Piece(0, 0, 0, 8)}).ok());
}

TEST_P(TransportConformance, ConnectingAgainGivesTheSamePeer) {
  const Peer again = Connected(target_->Describe());
  EXPECT_EQ(again.id, peer_.id);
  EXPECT_EQ(again.regions, peer_.regions);
  EXPECT_TRUE(Run(TransferOp::kPut, {Piece(0, 0, 0, 8)}).ok());
}

TEST_P(TransportConformance, RefusesDamagedAndForeignDescriptions) {
  const std::string good = target_->Describe();
  for (size_t size : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
    EXPECT_TRUE(absl::IsInvalidArgument(source_->Connect(good.substr(0, size)).status())) << size;
  }
  std::string damaged = good;
  damaged[good.size() / 2] ^= 1;
  EXPECT_TRUE(absl::IsInvalidArgument(source_->Connect(damaged).status()));
  const bool is_loopback = world_.lane == "loopback";
  auto foreign = (is_loopback ? UcxWorld("", "", "self") : LoopbackWorld()).make_source();
  auto text = foreign->Describe({});
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(source_->Connect(*text).status()));
}

TEST_P(TransportConformance, DisconnectEndsTransfersAndConnectComesBack) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 100)}).ok());
  const TransferId id = Posted(TransferOp::kPut, {Piece(1, 0, 0, 100)});
  ASSERT_TRUE(source_->Disconnect(peer_.id).ok());
  EXPECT_TRUE(absl::IsUnavailable(EndOf(id)));
  EXPECT_TRUE(absl::IsNotFound(source_->Inspect(peer_.id).status()));
  for (int i = 0; i < 3; ++i) {
    peer_ = Connected(target_->Describe());
    FillSource(0, "again");
    auto status = Run(TransferOp::kPut, {Piece(1, 0, 10, 5)});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(target_->Read(1, 10, 5), "again");
    ASSERT_TRUE(source_->Disconnect(peer_.id).ok());
  }
}

TEST_P(TransportConformance, QueueIsBounded) {
  std::vector<TransferId> ids;
  absl::Status refused;
  while (refused.ok()) {
    auto id = source_->Post(peer_.id, TransferOp::kPut, {}, kLong);
    if (id.ok()) ids.push_back(*id);
    refused = id.status();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  for (auto& [id, completion] : Ended(ids)) EXPECT_TRUE(completion.status.ok());
}

TEST_P(TransportConformance, WakeEndsAPoll) {
  std::vector<TransferCompletion> out;
  source_->Wake();
  EXPECT_EQ(source_->Poll(1, 1h, &out), 0u);
  std::thread sleeper([&] { EXPECT_EQ(source_->Poll(1, 1h, &out), 0u); });
  source_->Wake();
  sleeper.join();
}

TEST_P(TransportConformance, ASleepingPollServesAPostOfAnotherThread) {
  std::vector<TransferCompletion> out;
  std::thread progress([&] {
    while (out.size() < 50) source_->Poll(1, 1h, &out);
  });
  for (int i = 0; i < 50; ++i) Posted(TransferOp::kPut, {Piece(i % 2, 0, 0, 4096)});
  progress.join();
  for (auto& completion : out) EXPECT_TRUE(completion.status.ok()) << completion.status;
}

TEST_P(TransportConformance, InspectCountsAndNamesTheLanes) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(0, 0, 0, 1000), Piece(0, 3000, 2000, 24)}).ok());
  ASSERT_TRUE(Run(TransferOp::kGet, {Piece(0, 0, 0, 77)}).ok());
  auto info = source_->Inspect(peer_.id);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->put_bytes, 1024u);
  EXPECT_EQ(info->get_bytes, 77u);
  EXPECT_GT(info->busy_seconds, 0);
  EXPECT_NE(info->lanes.find(world_.lane), std::string::npos) << info->lanes;
  EXPECT_EQ(info->path, world_.path);
}

TEST_P(TransportConformance, AKilledPeerIsFoundAndItsSuccessorIsServed) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 1000)}).ok());
  target_->Kill();
  PollUntilBroken();
  const TransferPiece piece[] = {Piece(1, 0, 0, 8)};
  EXPECT_TRUE(
      absl::IsUnavailable(source_->Post(peer_.id, TransferOp::kPut, piece, kLong).status()));
  const PeerId dead = peer_.id;
  target_ = world_.make_target();
  peer_ = Connected(target_->Describe());
  EXPECT_NE(peer_.id, dead);
  FillSource(0, "reborn");
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 6)}).ok());
  EXPECT_EQ(target_->Read(1, 0, 6), "reborn");
  EXPECT_TRUE(source_->Disconnect(dead).ok());
}

TEST_P(TransportConformance, TransfersUnderWayToAKilledPeerEnd) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 1000)}).ok());
  target_->Stop();  // so that some are on the wire when it dies
  std::vector<TransferId> ids;
  for (int i = 0; i < 20; ++i) {
    ids.push_back(Posted(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)}, 20s));
  }
  std::vector<TransferCompletion> none;
  EXPECT_EQ(source_->Poll(0, 0ns, &none), 0u);
  target_->Kill();
  for (auto& [id, end] : Ended(ids)) {
    EXPECT_TRUE(end.status.ok() || absl::IsUnavailable(end.status)) << end.status;
  }
}

TEST_P(TransportConformance, APeerDeadBeforeTheFirstTransferEndsIt) {
  target_->Kill();
  auto id = source_->Post(peer_.id, TransferOp::kPut, std::vector{Piece(1, 0, 0, 100)}, 2s);
  if (!id.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(id.status())) << id.status();
    return;
  }
  const auto status = EndOf(*id);
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
}

TEST_P(TransportConformance, ASourceThatVanishesHarmsNoTarget) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 20; ++i) Posted(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)});
    for (int i = 0; i < 5; ++i) Posted(TransferOp::kGet, {Piece(1, 0, 0, 256 << 10)});
    std::vector<TransferCompletion> out;
    for (int i = 0; i < round; ++i) source_->Poll(1, 1ms, &out);
    if (world_.device) world_.device->Free(memory_.base, kSourceBytes);
    NewSource();
    peer_ = Connected(target_->Describe());
    FillSource(0, "still here");
    auto status = Run(TransferOp::kPut, {Piece(1, 0, 0, 10)});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(target_->Read(1, 0, 10), "still here");
  }
}

// What only a target in a process of its own can suffer: standing still.
class TransportOfProcesses : public TransportConformance {};

TEST_P(TransportOfProcesses, AStoppedPeerEndsInTheDeadlineAndCanComeBack) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 1000)}).ok());
  target_->Stop();
  std::vector<TransferId> ids;
  // One that was overdue before it reached the wire breaks nothing; then another is tried.
  while (!source_->Inspect(peer_.id)->broken) {
    ids.push_back(Posted(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)}, 300ms));
    const TransferId other = Posted(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)});
    std::vector<TransferCompletion> out;
    while (out.empty()) source_->Poll(1, kLong, &out);
    EXPECT_EQ(out[0].id, ids.back());
    EXPECT_TRUE(absl::IsDeadlineExceeded(out[0].status)) << out[0].status;
    ids.back() = other;
  }
  for (auto& [id, end] : Ended(ids)) EXPECT_TRUE(absl::IsUnavailable(end.status)) << end.status;
  target_->Continue();
  const PeerId before = peer_.id;
  peer_ = Connected(target_->Describe());
  EXPECT_EQ(peer_.id, before);
  const std::string data = RandomBytes(100 << 10, &random_);
  FillSource(0, data);
  auto status = Run(TransferOp::kPut, {Piece(1, 0, 100 << 10, data.size())});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(target_->Read(1, 100 << 10, data.size()) == data);
}

TEST_P(TransportOfProcesses, ACancelledTransferToAStoppedPeerEnds) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 1000)}).ok());
  target_->Stop();
  const auto deadline = std::chrono::steady_clock::now() + 300ms;
  const TransferId id = Posted(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)}, 300ms);
  std::vector<TransferCompletion> none;
  source_->Poll(0, 1ms, &none);
  source_->Cancel(id);
  const bool in_time = std::chrono::steady_clock::now() < deadline;
  const auto status = EndOf(id);
  EXPECT_TRUE(absl::IsCancelled(status) || (!in_time && absl::IsDeadlineExceeded(status)))
      << status;
}

// More scattered bytes than sockets hold, cancelled while the target stands still.
TEST_P(TransportOfProcesses, CancelInTheMiddleOfAScatterEndsEachOnce) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 1000)}).ok());
  target_->Stop();
  std::vector<TransferPiece> pieces;
  for (size_t i = 0; i < 64; ++i) pieces.push_back(Piece(1, i * 8192, (63 - i) * 4096, 4096));
  std::vector<TransferId> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(Posted(TransferOp::kPut, pieces));
  std::vector<TransferCompletion> none;
  EXPECT_EQ(source_->Poll(0, 1ms, &none), 0u);
  for (const TransferId id : ids) source_->Cancel(id);
  target_->Continue();
  size_t unsent = 0;
  for (auto& [id, end] : Ended(ids)) {
    EXPECT_TRUE(absl::IsCancelled(end.status)) << end.status;
    if (end.bytes == 0) ++unsent;
  }
  EXPECT_GT(unsent, 0u);
  EXPECT_FALSE(source_->Inspect(peer_.id)->broken);
  FillSource(0, "after");
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 5)}).ok());
  EXPECT_EQ(target_->Read(1, 0, 5), "after");
}

TEST_P(TransportOfProcesses, AStoppedPeerBlocksNoOther) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 1000)}).ok());
  target_->Stop();
  const TransferId stalled = Posted(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)});
  const Peer stopped = peer_;
  auto second = world_.make_target();
  peer_ = Connected(second->Describe());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)}).ok());
  }
  target_->Continue();
  EXPECT_TRUE(EndOf(stalled).ok());
}

TEST_P(TransportOfProcesses, DestructionWithAStoppedPeerIsBounded) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(1, 0, 0, 1000)}).ok());
  target_->Stop();
  Posted(TransferOp::kPut, {Piece(1, 0, 0, 256 << 10)});
  std::vector<TransferCompletion> out;
  source_->Poll(1, 0ns, &out);
  source_.reset();
  target_->Continue();
  EXPECT_EQ(target_->Read(1, 0, 4).size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(All, TransportConformance,
                         testing::Values("Loopback", "Faultless", "UcxSharedMemory", "UcxTcp",
                                         "FarSharedMemory", "FarTcp"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(All, TransportOfProcesses,
                         testing::Values("UcxSharedMemory", "UcxTcp", "FarSharedMemory", "FarTcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace skein::engine
