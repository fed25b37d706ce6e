// The contract of transport.h, run by every implementation: what is refused, and what ids mean.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport/conformance/conformance.h"
#include "engine/transport/description.h"
#include "engine/transport/loopback_transport.h"
#include "engine/transport/ucx/ucx_transport.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

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

TEST_P(TransportConformance, RefusesDamagedAndForeignDescriptions) {
  const std::string good = target_->Describe();
  for (size_t size : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
    EXPECT_TRUE(absl::IsInvalidArgument(source_->Connect(good.substr(0, size)).status())) << size;
  }
  std::string damaged = good;
  damaged[good.size() / 2] ^= 1;
  EXPECT_TRUE(absl::IsInvalidArgument(source_->Connect(damaged).status()));
  const bool is_loopback = world_.transport == "loopback";
  auto foreign = is_loopback ? MakeUcxTransport({.tls = "self,tcp"}).value()
                             : MakeLoopbackTransport(MakeLoopbackFabric());
  auto text = foreign->Describe({});
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(source_->Connect(*text).status()));
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

}  // namespace
}  // namespace skein::engine
