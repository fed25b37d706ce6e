// The contract of transport.h, run by every implementation: transfers that do not end well.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport/conformance/conformance.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace skein::engine
