// A router that attaches to a token stream ahead of its blocks.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/router/testing/router_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::RouterCoreTest;
using testing::Spec;

// The plan says where the request was announced.
class AheadTest : public RouterCoreTest {
 protected:
  AheadTest() {
    Do(Arrived{Spec(1)});
    opened_ = Of<OpenTokens>(Plan(5, 2, "d:1"));
  }
  std::vector<RouterEffect> Plan(uint64_t epoch, uint64_t decode, const std::string& endpoint) {
    return Do(PlanUpdateReceived{
        {7, 1},
        Planned{
            .epoch = {epoch}, .prefill = {1}, .decode = {decode}, .decode_endpoint = endpoint}});
  }
  std::vector<RouterEffect> PlaceAt(uint64_t decode, const std::string& endpoint) {
    return Do(PlanUpdateReceived{{7, 1}, Placed{{5}, {decode}, endpoint}});
  }
  std::vector<OpenTokens> opened_;
};

TEST_F(AheadTest, TheRouterAttachesWithThePlanAndOnce) {
  ASSERT_EQ(opened_.size(), 1u);
  EXPECT_TRUE(opened_[0].ahead);
  EXPECT_EQ(opened_[0].endpoint, "d:1");
  EXPECT_EQ(core_.StateOf({7, 1}), "submitted");
  EXPECT_TRUE(Plan(5, 2, "d:1").empty()) << "duplicate";
  EXPECT_TRUE(PlaceAt(2, "d:1").empty());
  EXPECT_EQ(core_.StateOf({7, 1}), "placed");
  EXPECT_EQ(Of<DeliverToken>(Token(1, 0)).size(), 1u);
}

TEST_F(AheadTest, ATokenThatComesBeforeTheOrchestratorsMessagePlacesTheRequest) {
  EXPECT_EQ(Of<DeliverToken>(Token(1, 0)).size(), 1u);
  EXPECT_EQ(core_.StateOf({7, 1}), "placed");
  EXPECT_TRUE(PlaceAt(2, "d:1").empty());
  EXPECT_EQ(Of<DeliverToken>(Token(1, 1)).size(), 1u);
}

TEST_F(AheadTest, AWholeAnswerThatComesBeforeTheOrchestratorsMessageEndsTheRequest) {
  const auto ends =
      Of<End>(Do(FinishedReceived{{7, 1}, {5}, FinishReason::kLength, {}, 0, -1, ""}));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_TRUE(ends[0].status.ok());
  EXPECT_TRUE(ends[0].begun);
}

TEST_F(AheadTest, PlacedElsewhereTheRouterDetachesFirst) {
  const auto effects = PlaceAt(3, "d:2");
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<CloseTokens>(effects[0]).epoch, Epoch{5});
  EXPECT_EQ(std::get<OpenTokens>(effects[1]).endpoint, "d:2");
  EXPECT_FALSE(std::get<OpenTokens>(effects[1]).ahead);
}

TEST_F(AheadTest, PlacedAtTheSameProcessUnderAnotherNumberTheStreamStays) {
  EXPECT_TRUE(PlaceAt(9, "d:1").empty());
  EXPECT_EQ(Of<DeliverToken>(Token(1, 0)).size(), 1u);
}

// Nothing of the request was there: its orchestrator places it.
TEST_F(AheadTest, AStreamThatEndsAheadOfTheBlocksMeansNothing) {
  EXPECT_TRUE(
      Do(FinishedReceived{
             {7, 1}, {5}, FinishReason::kError, absl::InvalidArgumentError("no room"), 0, -1, ""})
          .empty());
  EXPECT_EQ(Of<OpenTokens>(PlaceAt(2, "d:1")).size(), 1u);
  Do(ClientGone{{7, 1}});
  Do(Arrived{Spec(2)});
  const PlanUpdate plan =
      Planned{.epoch = {6}, .prefill = {1}, .decode = {2}, .decode_endpoint = "d:1"};
  Do(PlanUpdateReceived{{7, 2}, plan});
  EXPECT_TRUE(Do(TokenStreamLost{{7, 2}, {6}, absl::UnavailableError("connection lost")}).empty());
  EXPECT_EQ(core_.StateOf({7, 2}), "submitted");
}

TEST_F(AheadTest, ANewPlanAndAnEndCloseTheStream) {
  EXPECT_TRUE(Plan(4, 9, "d:9").empty()) << "a late message of an older plan";
  const auto effects = Plan(6, 3, "d:2");
  ASSERT_EQ(Of<CloseTokens>(effects).size(), 1u);
  EXPECT_EQ(Of<CloseTokens>(effects)[0].epoch, Epoch{5});
  EXPECT_EQ(Of<OpenTokens>(effects)[0].epoch, Epoch{6});
  EXPECT_TRUE(Token(1, 0).empty()) << "under the former epoch";
  EXPECT_EQ(Of<CloseTokens>(Do(ClientGone{{7, 1}}))[0].epoch, Epoch{6});
}

TEST_F(AheadTest, ARequestThatItsOrchestratorDoesNotKnowAnyMoreIsDetachedAndSubmittedAnew) {
  Break();
  const auto effects = Welcome({{7, 1}}, Generation{4, {2}});
  EXPECT_EQ(Of<CloseTokens>(effects).size(), 1u);
  EXPECT_EQ(Of<SendSubmit>(effects).size(), 1u);
}

// Its first token needs no orchestrator.
TEST_F(AheadTest, ATokenThatComesWhileTheCellIsNotReadyEndsTheWaitForIt) {
  Do(LinkBroken{absl::UnavailableError("connection lost")});
  EXPECT_EQ(Of<DeliverToken>(Token(1, 0)).size(), 1u);
  EXPECT_EQ(core_.StateOf({7, 1}), "placed");
}

}  // namespace
}  // namespace skein::scheduler
