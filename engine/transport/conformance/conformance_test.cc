// The contract of transport.h, run by every implementation: what moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/transport/conformance/conformance.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

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

TEST_P(TransportConformance, ConnectingAgainGivesTheSamePeer) {
  const Peer again = Connected(target_->Describe());
  EXPECT_EQ(again.id, peer_.id);
  EXPECT_EQ(again.regions, peer_.regions);
  EXPECT_TRUE(Run(TransferOp::kPut, {Piece(0, 0, 0, 8)}).ok());
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

TEST_P(TransportConformance, InspectCountsAndNamesTheTransport) {
  ASSERT_TRUE(Run(TransferOp::kPut, {Piece(0, 0, 0, 1000), Piece(0, 3000, 2000, 24)}).ok());
  ASSERT_TRUE(Run(TransferOp::kGet, {Piece(0, 0, 0, 77)}).ok());
  auto info = source_->Inspect(peer_.id);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->put_bytes, 1024u);
  EXPECT_EQ(info->get_bytes, 77u);
  EXPECT_GT(info->busy_seconds, 0);
  EXPECT_NE(info->transport.find(world_.transport), std::string::npos) << info->transport;
  EXPECT_EQ(info->path, world_.path);
}

}  // namespace
}  // namespace skein::engine
