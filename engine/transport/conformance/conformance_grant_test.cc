// The contract of transport.h, run by every implementation: grants.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/transport/conformance/conformance.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

TEST_P(TransportConformance, PutsArriveUntilTheirGrantIsClosed) {
  peer_ = Connected(target_->DescribeUnder({1}));
  EXPECT_EQ(peer_.grant, GrantId{1});
  for (const size_t region : {0u, 1u}) {
    FillSource(0, "arrives");
    ASSERT_TRUE(EndOf(PutUnder({1}, region, 7)).ok());
    EXPECT_EQ(target_->Read(region, 0, 7), "arrives");
  }
  Closed({1});
  for (const size_t region : {0u, 1u}) {
    FillSource(0, "is late");
    const absl::Status status = EndOf(PutUnder({1}, region, 7));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(target_->Read(region, 0, 7), "arrives");
    EXPECT_FALSE(source_->Inspect(peer_.id)->broken);
  }
}

TEST_P(TransportConformance, AGrantThatWasNeverOpenedPermitsNothing) {
  for (const size_t region : {0u, 1u}) {
    FillSource(0, "unwanted");
    EXPECT_EQ(EndOf(PutUnder({9}, region, 8)).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(target_->Read(region, 0, 8), std::string(8, '\0'));
  }
}

TEST_P(TransportConformance, ClosingAGrantLeavesTheOthersAndPutsUnderNoneAlone) {
  Connected(target_->DescribeUnder({1}));
  peer_ = Connected(target_->DescribeUnder({2}));
  for (const size_t region : {0u, 1u}) ASSERT_TRUE(EndOf(PutUnder({1}, region, 7)).ok());
  Closed({1});
  for (const size_t region : {0u, 1u}) {
    const TransferId late = PutUnder({1}, region, 7);
    const TransferId good = PutUnder({2}, region, 7);
    const TransferId plain = Posted(TransferOp::kPut, {Piece(region, 0, 100, 7)});
    auto ended = Ended({late, good, plain});
    EXPECT_FALSE(ended[late].status.ok());
    EXPECT_TRUE(ended[good].status.ok()) << ended[good].status;
    EXPECT_TRUE(ended[plain].status.ok()) << ended[plain].status;
  }
}

// Those that are closed under a running put end it; what they wrote before stays.
TEST_P(TransportConformance, ManyGrantsAreOpenedWrittenUnderAndClosed) {
  std::set<TransferId> posted;
  for (uint64_t grant = 1; grant <= 100; ++grant) {
    peer_ = Connected(target_->DescribeUnder({grant}));
    posted.insert(PutUnder({grant}, grant % 2, 200 << 10));
    std::vector<TransferCompletion> out;
    source_->Poll(1, 0ns, &out);
    if (random_() % 2 == 0) {
      for (size_t ended = out.size(); ended == 0; ended = out.size()) source_->Poll(1, 1ms, &out);
    }
    target_->CloseGrant({grant});
    while (!target_->IsClosed({grant})) source_->Poll(100, 1ms, &out);
    for (const TransferCompletion& end : out) {
      EXPECT_EQ(posted.erase(end.id), 1u);
      EXPECT_TRUE(end.status.ok() || absl::IsFailedPrecondition(end.status)) << end.status;
    }
    const std::string mark(1, static_cast<char>(grant));
    target_->Write(grant % 2, 0, mark);  // its next owner
    if (posted.empty()) continue;
    out.clear();
    while (out.empty()) source_->Poll(1, kLong, &out);
    posted.erase(out[0].id);
    EXPECT_EQ(target_->Read(grant % 2, 0, 1), mark);
  }
  EXPECT_TRUE(posted.empty());
}

TEST_P(TransportConformance, AGrantIsClosedWhenItsSourceIsGone) {
  peer_ = Connected(target_->DescribeUnder({1}));
  ASSERT_TRUE(EndOf(PutUnder({1}, 0, 7)).ok());
  ASSERT_TRUE(source_->Disconnect(peer_.id).ok());
  target_->CloseGrant({1});
  target_->WaitUntilClosed({1});
  peer_ = Connected(target_->DescribeUnder({2}));
  ASSERT_TRUE(EndOf(PutUnder({2}, 0, 7)).ok());
  source_.reset();
  target_->CloseGrant({2});
  target_->WaitUntilClosed({2});
}

}  // namespace
}  // namespace skein::engine
