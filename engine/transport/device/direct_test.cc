// Copies straight into the device memory of another process: what the conformance suite (FarDirect,
// FarMixed) does not ask.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/testing/far_peer_opener.h"
#include "engine/transport/description.h"
#include "engine/transport/device/region_export.h"
#include "engine/transport/testing/target.h"
#include "engine/transport/ucx/ucx_transport.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

constexpr size_t kSourceBytes = 1 << 20;
constexpr char kTls[] = "self,shm";

// A copy stream whose copies can be held back, or fail.
class Valve : public CopyStream {
 public:
  explicit Valve(std::shared_ptr<CopyStream> below) : below_(std::move(below)) {}

  // Looks run no copy until then, nor do the next `looks` ones.
  void Hold(std::chrono::steady_clock::time_point until, int looks) {
    held_until_ = until;
    held_looks_ = looks;
  }
  void Fail(bool fail) { fail_ = fail; }
  bool idle() { return *below_->Done(*below_->Mark()); }

  bool IsDevice(const void* pointer) const override { return below_->IsDevice(pointer); }
  absl::StatusOr<void*> AllocHost(size_t bytes) override { return below_->AllocHost(bytes); }
  void FreeHost(void* pointer, size_t bytes) override { below_->FreeHost(pointer, bytes); }
  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    return below_->Copy(to, from, bytes);
  }
  // Fails behind the first piece.
  absl::Status CopyPieces(std::span<const CopyPiece> pieces) override {
    if (fail_ && !pieces.empty()) {
      (void)below_->CopyPieces(pieces.first(1));
      return absl::InternalError("the device is ill");
    }
    return below_->CopyPieces(pieces);
  }
  absl::StatusOr<uint64_t> Mark() override { return below_->Mark(); }
  absl::StatusOr<bool> Done(uint64_t mark) override {
    if (std::chrono::steady_clock::now() < held_until_) return false;
    if (held_looks_ > 0) {
      --held_looks_;
      return false;
    }
    return below_->Done(mark);
  }

 private:
  const std::shared_ptr<CopyStream> below_;
  std::chrono::steady_clock::time_point held_until_;
  int held_looks_ = 0;
  bool fail_ = false;
};

// Cannot open what others exported, as if they were on another node.
class Blind : public PeerOpener {
 public:
  explicit Blind(std::unique_ptr<PeerOpener> below) : below_(std::move(below)) {}
  std::string Name() const override { return below_->Name(); }
  uint64_t Process() const override { return below_->Process(); }
  absl::StatusOr<PeerPlace> Export(const void* data) override { return below_->Export(data); }
  absl::StatusOr<std::shared_ptr<std::byte>> Open(const PeerPlace&) override {
    return absl::UnavailableError("not of this node");
  }

 private:
  const std::unique_ptr<PeerOpener> below_;
};

// A process with memory of a device and some of the host.
struct Source {
  explicit Source(bool sees_peers = true, const std::string& tls = kTls) {
    std::unique_ptr<PeerOpener> opener = MakeFarPeerOpener(device);
    if (!sees_peers) opener = std::make_unique<Blind>(std::move(opener));
    transport = MakeUcxTransport({.tls = tls}, copies, std::move(opener)).value();
    memory = transport->Register(device->Alloc(kSourceBytes).value(), kSourceBytes).value();
    host = transport->Register(nullptr, kSourceBytes).value();
  }

  Peer Connect(TestingTarget* target) { return transport->Connect(target->Describe()).value(); }
  char* Near(size_t offset) {
    return reinterpret_cast<char*>(device->NearOf(memory.base + offset));
  }
  void Fill(const std::string& data) { data.copy(Near(0), data.size()); }

  absl::Status Run(const Peer& peer, TransferOp op, const std::vector<TransferPiece>& pieces,
                   std::chrono::nanoseconds timeout = 60s) {
    const auto id = transport->Post(peer.id, op, pieces, timeout);
    if (!id.ok()) return id.status();
    std::vector<TransferCompletion> ended;
    while (ended.empty()) transport->Poll(1, 60s, &ended);
    return ended[0].status;
  }
  absl::Status Put(const Peer& peer, size_t region, size_t offset, size_t bytes) {
    return Run(peer, TransferOp::kPut, {{memory.id, 0, peer.regions[region], offset, bytes}});
  }

  const std::shared_ptr<FarDevice> device = std::make_shared<FarDevice>(2 << 20);
  const std::shared_ptr<Valve> copies = std::make_shared<Valve>(MakeFarCopyStream(device));
  std::unique_ptr<Transport> transport;
  Region memory;  // the device's
  Region host;
};

TEST(Direct, ATargetThatStandsStillIsWrittenTo) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  Source source;
  const Peer peer = source.Connect(target.get());
  target->Stop();
  source.Fill("while you slept");
  EXPECT_TRUE(source.Put(peer, 0, 100, 15).ok());
  EXPECT_TRUE(source.Put(peer, 1, 7, 15).ok());
  EXPECT_EQ(source.transport->Inspect(peer.id)->transport, "far-ipc");
  target->Continue();
  EXPECT_EQ(target->Read(0, 100, 15), "while you slept");
  EXPECT_EQ(target->Read(1, 7, 15), "while you slept");
}

TEST(Direct, MemoryIsOpenAsLongAsSomePeerUsesIt) {
  EXPECT_EQ(FarAllocationsOpen(), 0u);
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  auto first = std::make_unique<Source>();
  Source second;
  const Peer of_first = first->Connect(target.get());
  EXPECT_EQ(FarAllocationsOpen(), 1u);  // both regions lie in it
  const Peer of_second = second.Connect(target.get());
  EXPECT_EQ(FarAllocationsOpen(), 1u);
  ASSERT_TRUE(first->transport->Disconnect(of_first.id).ok());
  second.Fill("still open");
  EXPECT_TRUE(second.Put(of_second, 1, 0, 10).ok());
  EXPECT_EQ(target->Read(1, 0, 10), "still open");
  first->Connect(target.get());
  first.reset();
  EXPECT_EQ(FarAllocationsOpen(), 1u);
  ASSERT_TRUE(second.transport->Disconnect(of_second.id).ok());
  EXPECT_EQ(FarAllocationsOpen(), 0u);
}

// A put into its memory may still end OK; then its death is found, and the memory closed.
TEST(Direct, ATargetThatDiesWhileCopiesRunIsFoundAndClosed) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  Source source;
  const Peer peer = source.Connect(target.get());
  source.copies->Hold({}, 50);
  std::vector<TransferPiece> pieces;
  for (size_t at = 0; at < kTargetRegionBytes[1]; at += 4096) {
    pieces.push_back({source.memory.id, at, peer.regions[1], at, 4000});
  }
  ASSERT_TRUE(source.transport->Post(peer.id, TransferOp::kPut, pieces, 60s).ok());
  std::vector<TransferCompletion> ended;
  EXPECT_EQ(source.transport->Poll(0, 0ns, &ended), 0u);
  target->Kill();
  while (!source.transport->Inspect(peer.id)->broken || ended.empty()) {
    source.transport->Poll(1, 1s, &ended);
  }
  EXPECT_TRUE(ended[0].status.ok() || absl::IsUnavailable(ended[0].status)) << ended[0].status;
  EXPECT_EQ(FarAllocationsOpen(), 0u);
  EXPECT_TRUE(absl::IsUnavailable(source.Put(peer, 0, 0, 1)));
}

// From its completion on, whatever its status, a transfer changes nothing any more.
TEST(Direct, ATransferThatIsOverdueEndsWhenItsCopiesHave) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  Source source;
  const Peer peer = source.Connect(target.get());
  source.copies->Hold(std::chrono::steady_clock::now() + 20ms, 100);
  const TransferPiece piece = {source.memory.id, 0, peer.regions[0], 0, kTargetRegionBytes[0]};
  EXPECT_TRUE(absl::IsDeadlineExceeded(source.Run(peer, TransferOp::kPut, {piece}, 10ms)));
  EXPECT_TRUE(source.copies->idle());
  EXPECT_TRUE(source.transport->Inspect(peer.id)->broken);
  source.Fill("back");
  const Peer again = source.Connect(target.get());
  EXPECT_EQ(again.id, peer.id);
  EXPECT_TRUE(source.Put(again, 0, 0, 4).ok());
  EXPECT_EQ(target->Read(0, 0, 4), "back");
}

TEST(Direct, ADeviceThatFailsToCopyBreaksThePeer) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  Source source;
  const Peer peer = source.Connect(target.get());
  source.copies->Fail(true);
  const absl::Status status = source.Put(peer, 0, 0, 100);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(std::string(status.message()).find("the device is ill"), std::string::npos) << status;
  EXPECT_TRUE(source.copies->idle());
  std::vector<TransferCompletion> none;
  while (!source.transport->Inspect(peer.id)->broken) source.transport->Poll(0, 1s, &none);
  source.copies->Fail(false);
  EXPECT_TRUE(source.Put(source.Connect(target.get()), 0, 0, 100).ok());
}

TEST(Direct, TheHostsMemoryGoesStraightToAndFromTheirDevice) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  Source source;
  const Peer peer = source.Connect(target.get());
  auto* const host = reinterpret_cast<char*>(source.host.base);
  std::string("from the host").copy(host, 13);
  const std::vector<TransferPiece> pieces = {{source.host.id, 0, peer.regions[0], 5, 13}};
  EXPECT_TRUE(source.Run(peer, TransferOp::kPut, pieces).ok());
  EXPECT_EQ(target->Read(0, 5, 13), "from the host");
  target->Write(0, 5, "to the host  ");
  EXPECT_TRUE(source.Run(peer, TransferOp::kGet, pieces).ok());
  EXPECT_EQ(std::string(host, 13), "to the host  ");
  EXPECT_EQ(source.transport->Inspect(peer.id)->path, "direct");
}

// One transfer with pieces for both ways.
TEST(Direct, WhatIsNotADevicesGoesTheOtherWay) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kDeviceAndHost);
  Source source;
  const Peer peer = source.Connect(target.get());
  source.Fill("device host");
  EXPECT_TRUE(source
                  .Run(peer, TransferOp::kPut,
                       {{source.memory.id, 0, peer.regions[0], 3, 6},
                        {source.memory.id, 7, peer.regions[1], 4, 4}})
                  .ok());
  EXPECT_EQ(target->Read(0, 3, 6), "device");
  EXPECT_EQ(target->Read(1, 4, 4), "host");
  const PeerInfo info = source.transport->Inspect(peer.id).value();
  EXPECT_EQ(info.path, "host-staged");
  EXPECT_EQ(info.transport, "far-ipc,ring");
}

void ExpectStaged(Source* source, TestingTarget* target, size_t region) {
  const Peer peer = source->Connect(target);
  source->Fill("by the host");
  EXPECT_TRUE(source->Put(peer, region, 9, 11).ok());
  EXPECT_EQ(target->Read(region, 9, 11), "by the host");
  EXPECT_EQ(source->transport->Inspect(peer.id)->path, "host-staged");
  EXPECT_EQ(FarAllocationsOpen(), 0u);
}

TEST(Direct, WhatCannotBeOpenedIsStaged) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  Source source(/*sees_peers=*/false);
  ExpectStaged(&source, target.get(), 0);
  const Peer peer = source.Connect(target.get());
  EXPECT_EQ(source.transport->Inspect(peer.id)->transport, "ring (not far-ipc: not of this node)");
}

TEST(Direct, APeerThatDoesNotShareIsStaged) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kHostAndDevice);
  Source source;
  ExpectStaged(&source, target.get(), 1);
}

TEST(Direct, APeerOverTcpIsStaged) {
  const auto target = SpawnProcessTarget("self,tcp", TargetMemory::kAllocation);
  Source source(/*sees_peers=*/true, "self,tcp");
  ExpectStaged(&source, target.get(), 1);
}

// A description that names our own memory as the peer's.
TEST(Direct, NobodyElseCanNameAPlaceInOurMemory) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  Source source;
  auto forged = ParseDescription(target->Describe()).value();
  DescribedRegion& region = forged.regions[1];
  RegionExport exported = TakeExport(&region.key).value();
  exported.place = MakeFarPeerOpener(source.device)->Export(source.memory.base).value();
  AppendExport(exported, &region.key);
  const Peer peer = source.transport->Connect(SerializeDescription(forged)).value();
  std::string("theirs ours").copy(source.Near(1000), 11);
  const std::vector<TransferPiece> pieces = {{source.memory.id, 1000, peer.regions[1], 0, 6}};
  EXPECT_TRUE(source.Run(peer, TransferOp::kPut, pieces).ok());
  EXPECT_EQ(target->Read(1, 0, 6), "theirs");
  EXPECT_EQ(std::string(source.Near(0), 6), std::string(6, '\0'));
}

// A process without a device ignores what the description says of sharing.
TEST(Direct, AProcessOfTheHostReachesTheDeviceByMessages) {
  const auto target = SpawnProcessTarget(kTls, TargetMemory::kAllocation);
  const auto source = MakeUcxTransport({.tls = kTls}).value();
  const Region memory = source->Register(nullptr, 4096).value();
  const Peer peer = source->Connect(target->Describe()).value();
  std::string("plain").copy(reinterpret_cast<char*>(memory.base), 5);
  const TransferPiece piece = {memory.id, 0, peer.regions[1], 50, 5};
  ASSERT_TRUE(source->Post(peer.id, TransferOp::kPut, {&piece, 1}, 60s).ok());
  std::vector<TransferCompletion> ended;
  ASSERT_EQ(source->Poll(1, 60s, &ended), 1u);
  EXPECT_TRUE(ended[0].status.ok()) << ended[0].status;
  EXPECT_EQ(target->Read(1, 50, 5), "plain");
}

}  // namespace
}  // namespace skein::engine
