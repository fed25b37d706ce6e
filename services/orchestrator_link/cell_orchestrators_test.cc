#include "services/orchestrator_link/cell_orchestrators.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

using Failure = CellOrchestrators::Failure;

TEST(CellOrchestratorsTest, ACellNamesEachOfItsOrchestratorsOnce) {
  EXPECT_EQ(*ParseCell("a:1"), (std::vector<std::string>{"a:1"}));
  EXPECT_EQ(*ParseCell("a:1+b:1"), (std::vector<std::string>{"a:1", "b:1"}));
  EXPECT_EQ(ParseCell("a:1++b:1").status().message(), "an address is empty; use HOST:PORT");
  EXPECT_EQ(ParseCell("a:1+b:1+a:1").status().message(), "a:1 is there twice; name each once");
}

TEST(CellOrchestratorsTest, TheOnlyOneIsTriedAgainInTheNextRound) {
  CellOrchestrators cell("a:1");
  for (const Failure how : {Failure::kTransport, Failure::kSilent, Failure::kStandby}) {
    cell.BeginRound();
    EXPECT_FALSE(cell.Failed("a:1", how, "", 0));
    EXPECT_EQ(cell.Current(), "a:1");
  }
}

TEST(CellOrchestratorsTest, ARoundAsksEachOnceAndTheNextBeginsWithOneThatAnswers) {
  CellOrchestrators cell("a:1+b:1+c:1");
  cell.BeginRound();
  EXPECT_TRUE(cell.Failed("a:1", Failure::kStandby, "", 0));
  EXPECT_EQ(cell.Current(), "b:1");
  EXPECT_TRUE(cell.Failed("b:1", Failure::kTransport, "", 0));
  EXPECT_EQ(cell.Current(), "c:1");
  EXPECT_FALSE(cell.Failed("c:1", Failure::kTransport, "", 0));
  EXPECT_EQ(cell.Current(), "a:1");
}

TEST(CellOrchestratorsTest, AStandbyNamesTheLeaderWhichIsAskedNext) {
  CellOrchestrators cell("a:1+b:1+c:1");
  cell.BeginRound();
  EXPECT_TRUE(cell.Failed("a:1", StandbyError("c:1"), 0));
  EXPECT_EQ(cell.Current(), "c:1");
  cell.BeginRound();
  EXPECT_TRUE(cell.Failed("c:1", StandbyError("pod-7:1"), 0)) << "one that the flag does not name";
  EXPECT_EQ(cell.Current(), "pod-7:1");
}

// It cancels what it takes in the moment in which it ends. After that nobody may answer at its
// address for long.
TEST(CellOrchestratorsTest, OneThatCancelsIsGone) {
  CellOrchestrators cell("a:1+b:1");
  cell.BeginRound();
  EXPECT_TRUE(cell.Failed("a:1", absl::CancelledError("CANCELLED"), 0));
  EXPECT_EQ(cell.Current(), "b:1");
  EXPECT_FALSE(cell.Failed("b:1", StandbyError("a:1"), 1)) << "it is passed over";
  EXPECT_EQ(cell.Current(), "b:1");
  EXPECT_TRUE(OrchestratorIsGone(absl::UnavailableError("")));
  EXPECT_FALSE(OrchestratorIsGone(StandbyError("a:1")));
  EXPECT_FALSE(OrchestratorIsGone(absl::FailedPreconditionError("")));
}

// The leader is killed or stopped. The standby names it until its lease has ended.
TEST(CellOrchestratorsTest, OneThatHasJustFailedIsPassedOverAlthoughItIsNamed) {
  for (const auto& [how, avoided_us] :
       {std::pair{Failure::kTransport, CellOrchestrators::kFailedUs},
        std::pair{Failure::kSilent, CellOrchestrators::kSilentUs}}) {
    CellOrchestrators cell("a:1+b:1");
    cell.BeginRound();
    EXPECT_TRUE(cell.Failed("a:1", how, "", 0));
    EXPECT_EQ(cell.Current(), "b:1");
    for (int64_t now_us = 0; now_us < avoided_us; now_us += 100'000) {
      cell.BeginRound();
      EXPECT_FALSE(cell.Failed("b:1", Failure::kStandby, "a:1", now_us));
      EXPECT_EQ(cell.Current(), "b:1");
    }
    cell.BeginRound();
    EXPECT_TRUE(cell.Failed("b:1", Failure::kStandby, "a:1", avoided_us)) << "it may be back";
    EXPECT_EQ(cell.Current(), "a:1");
  }
}

// It may have stepped aside because nothing reaches it: who asks it waits for long, although the
// standby may still name it.
TEST(CellOrchestratorsTest, OneThatHasSteppedDownIsPassedOverWhileAnotherOneAnswers) {
  for (const char* const named : {"", "a:1"}) {
    CellOrchestrators cell("a:1+b:1");
    cell.BeginRound();
    cell.Failed("a:1", StandbyError(""), 0, /*led=*/true);
    EXPECT_EQ(cell.Current(), "b:1");
    for (int64_t now_us = 0; now_us < CellOrchestrators::kSteppedDownUs; now_us += 100'000) {
      cell.BeginRound();
      EXPECT_FALSE(cell.Failed("b:1", StandbyError(named), now_us));
      EXPECT_EQ(cell.Current(), "b:1");
    }
    cell.BeginRound();
    EXPECT_TRUE(cell.Failed("b:1", StandbyError(named), CellOrchestrators::kSteppedDownUs));
    EXPECT_EQ(cell.Current(), "a:1") << "it may lead again";
  }
  CellOrchestrators cell("a:1+b:1");
  cell.BeginRound();
  cell.Failed("a:1", StandbyError(""), 0, /*led=*/true);
  cell.BeginRound();
  EXPECT_TRUE(cell.Failed("b:1", absl::UnavailableError(""), 1)) << "nobody else answers";
  EXPECT_EQ(cell.Current(), "a:1");
}

TEST(CellOrchestratorsTest, WithoutAnAnswerFromAnyAllAreAsked) {
  CellOrchestrators cell("a:1+b:1");
  for (int64_t round = 0; round < 5; ++round) {
    cell.BeginRound();
    const std::string first = cell.Current();
    EXPECT_TRUE(cell.Failed(first, Failure::kTransport, "", round));
    const std::string second = cell.Current();
    EXPECT_NE(first, second);
    EXPECT_FALSE(cell.Failed(second, Failure::kTransport, "", round));
  }
}

TEST(CellOrchestratorsTest, AnAnswerOfTheLeaderMovesNobody) {
  CellOrchestrators cell("a:1+b:1");
  cell.BeginRound();
  EXPECT_FALSE(cell.Failed("a:1", absl::FailedPreconditionError("another model"), 0));
  EXPECT_FALSE(cell.Failed("a:1", absl::AbortedError("a higher generation"), 0));
  EXPECT_EQ(cell.Current(), "a:1");
}

TEST(CellOrchestratorsTest, AFailureOfAnotherThanTheCurrentOneMovesNobody) {
  CellOrchestrators cell("a:1+b:1+c:1");
  cell.BeginRound();
  EXPECT_TRUE(cell.Failed("a:1", Failure::kTransport, "", 0));
  EXPECT_FALSE(cell.Failed("a:1", Failure::kTransport, "", 0)) << "a second call to it";
  EXPECT_EQ(cell.Current(), "b:1");
}

TEST(CellOrchestratorsTest, NamedOnesAreBounded) {
  CellOrchestrators cell("a:1");
  for (int i = 0; i < 100; ++i) {
    cell.BeginRound();
    const std::string named = "pod-" + std::to_string(i) + ":1";
    EXPECT_TRUE(cell.Failed(cell.Current(), Failure::kStandby, named, 0));
    EXPECT_EQ(cell.Current(), named);
  }
  cell.BeginRound();
  int asked = 1;
  while (cell.Failed(cell.Current(), Failure::kTransport, "", 0)) ++asked;
  EXPECT_LE(asked, 10);
}

}  // namespace
}  // namespace skein::services
