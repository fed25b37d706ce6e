#include "scheduler/worker/steps/ring_steps.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::scheduler {
namespace {

using Effects = RingSteps::Effects;
using Lines = std::vector<std::string>;

const absl::Status kReason = absl::CancelledError("test");

RingPart PartOf(uint64_t chunk, bool moves = false, int members = 2, int tp = 1, int rank = 0) {
  RingPart part;
  part.rank = rank;
  part.tp = tp;
  part.group = {chunk, 0};
  part.moves_group = {chunk, 1};
  part.tensor_group = {chunk, 2};
  for (int i = 0; i < members; ++i) part.comm_addresses.push_back(absl::StrCat(i));
  if (moves) part.piece.moves.push_back({});
  return part;
}

BreakGroup GroupOf(uint64_t chunk, bool tensor = false) {
  return {.group = {chunk, tensor ? 2u : 0u}, .rank = 0, .comm_addresses = {}};
}

std::string NameOf(RingKind group) {
  if (group == RingKind::kTensor) return "tensor";
  return group == RingKind::kPieces ? "pieces" : "moves";
}
std::string NameOf(GroupId key) {
  const char* const suffixes[] = {"", "m", "t"};
  return absl::StrCat(key.high, suffixes[key.low]);
}

struct Describe {
  std::string operator()(const OpenRing& make) const {
    return absl::StrCat("make ", NameOf(make.group), " ", NameOf(make.key));
  }
  std::string operator()(const CloseRing& drop) const {
    return absl::StrCat("drop ", NameOf(drop.group));
  }
  std::string operator()(const AbortRing& abort) const {
    return absl::StrCat("abort ", NameOf(abort.group));
  }
  std::string operator()(const RefuseRing& refuse) const {
    return absl::StrCat("refuse ", NameOf(refuse.refused.group));
  }
};

// Answers OpenRing as `made` says, and lists all effects.
class RingStepsTest : public ::testing::Test {
 protected:
  Lines Run(const Effects& effects) {
    Lines lines;
    for (const RingEffect& effect : effects) {
      lines.push_back(std::visit(Describe(), effect));
      const absl::Status invariants = steps_.CheckInvariants();
      EXPECT_TRUE(invariants.ok()) << invariants;
      if (const auto* make = std::get_if<OpenRing>(&effect)) {
        EXPECT_EQ(make, std::get_if<OpenRing>(&effects.back())) << "not the last";
        const Lines more = Run(steps_.Opened(opened_[make->group]));
        lines.insert(lines.end(), more.begin(), more.end());
      }
    }
    const absl::Status invariants = steps_.CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    return lines;
  }
  Lines Enter(uint64_t step, const RingPart& part) { return Run(steps_.Enter(step, part)); }
  Lines Leave(const absl::Status& status = absl::OkStatus()) { return Run(steps_.Leave(status)); }

  std::map<RingKind, absl::Status> opened_;
  RingSteps steps_;
};

TEST_F(RingStepsTest, AGroupIsKeptForThePiecesOfAChunk) {
  EXPECT_EQ(Enter(1, PartOf(1)), (Lines{"make pieces 1"}));
  EXPECT_TRUE(steps_.entry().ok());
  EXPECT_EQ(Leave(), Lines{});
  EXPECT_EQ(Enter(2, PartOf(1)), Lines{});
  EXPECT_TRUE(steps_.entry().ok());
  EXPECT_EQ(Leave(), Lines{});
  EXPECT_EQ(Enter(3, PartOf(2)), (Lines{"drop pieces", "make pieces 2"}));
}

TEST_F(RingStepsTest, AStepThatMovesHistoryHasASecondGroup) {
  EXPECT_EQ(Enter(1, PartOf(1, true)), (Lines{"make pieces 1", "make moves 1m"}));
  EXPECT_EQ(Leave(), (Lines{"drop moves"}));
  EXPECT_EQ(Enter(2, PartOf(1)), Lines{});
}

TEST_F(RingStepsTest, ATensorGroupIsKeptForThePiecesOfAChunk) {
  EXPECT_EQ(Enter(1, PartOf(1, true, 4, 2)),
            (Lines{"make pieces 1", "make tensor 1t", "make moves 1m"}));
  EXPECT_EQ(Leave(), (Lines{"drop moves"}));
  EXPECT_EQ(Enter(2, PartOf(1, false, 4, 2)), Lines{});
  EXPECT_TRUE(steps_.entry().ok());
  EXPECT_EQ(Leave(), Lines{});
  EXPECT_EQ(Enter(3, PartOf(2, false, 4, 4)),
            (Lines{"drop pieces", "drop tensor", "make pieces 2", "make tensor 2t"}));
  EXPECT_EQ(Leave(), Lines{});
  EXPECT_EQ(Enter(4, PartOf(3, false, 4)), (Lines{"drop pieces", "drop tensor", "make pieces 3"}));
  EXPECT_EQ(Leave(), Lines{});
  EXPECT_EQ(Enter(5, PartOf(4, false, 4, 4)),
            (Lines{"drop pieces", "make pieces 4", "make tensor 4t"}));
}

TEST_F(RingStepsTest, ATensorGroupIsOfNeighboursByRank) {
  const auto tensor_of = [](int members, int tp, int rank) {
    RingSteps steps;
    steps.Enter(1, PartOf(1, false, members, tp, rank));
    const Effects effects = steps.Opened(absl::OkStatus());
    const OpenRing& ring = std::get<OpenRing>(effects.at(0));
    return absl::StrCat(ring.rank, ": ", absl::StrJoin(ring.comm_addresses, " "));
  };
  EXPECT_EQ(tensor_of(4, 2, 0), "0: 0 1");
  EXPECT_EQ(tensor_of(4, 2, 3), "1: 2 3");
  EXPECT_EQ(tensor_of(4, 4, 2), "2: 0 1 2 3");
  EXPECT_EQ(tensor_of(6, 2, 4), "0: 4 5");
}

TEST_F(RingStepsTest, ATensorGroupThatCannotBeOpenedEndsTheStep) {
  opened_[RingKind::kTensor] = absl::UnavailableError("test");
  EXPECT_EQ(Enter(1, PartOf(1, true, 4, 2)),
            (Lines{"make pieces 1", "make tensor 1t", "abort pieces", "drop pieces"}));
  EXPECT_EQ(steps_.entry().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RingStepsTest, WhateverBreaksAStepBreaksItsTensorGroupToo) {
  const Lines both = {"abort pieces", "abort tensor"};
  Enter(1, PartOf(1, false, 4, 2));
  EXPECT_EQ(Run(steps_.Abort(1, kReason)), both);
  EXPECT_EQ(Leave(kReason), (Lines{"drop pieces", "drop tensor"}));
  Enter(2, PartOf(2, false, 4, 2));
  EXPECT_EQ(Leave(kReason), (Lines{"abort pieces", "abort tensor", "drop pieces", "drop tensor"}));
  Enter(3, PartOf(3, false, 4, 2));
  Leave();
  EXPECT_EQ(Run(steps_.Break(GroupOf(3, true), kReason)), (Lines{"abort tensor"}));
  EXPECT_EQ(Run(steps_.Break(GroupOf(3, true), kReason)), Lines{}) << "it is broken";
  EXPECT_EQ(Run(steps_.Break(GroupOf(4, true), kReason)), (Lines{"refuse 4t"}));
  EXPECT_EQ(Run(steps_.Abort(3, kReason)), (Lines{"abort pieces"})) << "what is not broken yet";
  Enter(4, PartOf(4, false, 4, 2));
  EXPECT_EQ(Run(steps_.Stop()), both);
}

TEST_F(RingStepsTest, AChunkOfOneInstanceNeedsNoGroup) {
  Enter(1, PartOf(1));
  Leave();
  EXPECT_EQ(Enter(2, PartOf(2, false, 1)), (Lines{"drop pieces"}));
  EXPECT_TRUE(steps_.entry().ok());
  EXPECT_EQ(Run(steps_.Abort(2, kReason)), Lines{});
}

TEST_F(RingStepsTest, AFailedStepBreaksItsGroupsForTheOthers) {
  Enter(1, PartOf(1, true));
  EXPECT_EQ(Leave(absl::InternalError("test")),
            (Lines{"abort pieces", "abort moves", "drop pieces", "drop moves"}));
  EXPECT_EQ(Enter(2, PartOf(1)), (Lines{"make pieces 1"}));
}

TEST_F(RingStepsTest, ARingThatCannotBeOpenedEndsTheStep) {
  opened_[RingKind::kPieces] = absl::InvalidArgumentError("test");
  EXPECT_EQ(Enter(1, PartOf(1, true)), (Lines{"make pieces 1"}));
  EXPECT_EQ(steps_.entry().code(), absl::StatusCode::kUnavailable);
  // The others must not wait in a group whose second one is lacking here.
  opened_.clear();
  opened_[RingKind::kMoves] = absl::UnavailableError("test");
  EXPECT_EQ(Enter(2, PartOf(1, true)),
            (Lines{"make pieces 1", "make moves 1m", "abort pieces", "drop pieces"}));
  EXPECT_EQ(steps_.entry().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RingStepsTest, AbortBreaksAStepThatRuns) {
  Enter(1, PartOf(1, true));
  EXPECT_EQ(Run(steps_.Abort(1, kReason)), (Lines{"abort pieces", "abort moves"}));
  EXPECT_EQ(Run(steps_.Abort(1, kReason)), Lines{}) << "once";
  EXPECT_EQ(Leave(kReason), (Lines{"drop pieces", "drop moves"}));
}

TEST_F(RingStepsTest, AStepThatWasAbortedBeforeItCameBreaksItsGroups) {
  EXPECT_EQ(Run(steps_.Abort(2, kReason)), Lines{});
  EXPECT_EQ(Enter(1, PartOf(1)), (Lines{"make pieces 1", "abort pieces", "drop pieces"}));
  EXPECT_EQ(steps_.entry().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Enter(2, PartOf(1)), (Lines{"make pieces 1", "abort pieces", "drop pieces"}));
  EXPECT_EQ(steps_.entry().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Enter(3, PartOf(1)), (Lines{"make pieces 1"}));
  EXPECT_TRUE(steps_.entry().ok());
}

TEST_F(RingStepsTest, AStepThatIsAbortedWhileItsRingsAreOpenedBreaksThem) {
  EXPECT_EQ(steps_.Enter(1, PartOf(1)).size(), 1u);
  EXPECT_EQ(Run(steps_.Abort(1, kReason)), Lines{});
  EXPECT_EQ(Run(steps_.Opened(absl::OkStatus())), (Lines{"abort pieces", "drop pieces"}));
  EXPECT_EQ(steps_.entry().code(), absl::StatusCode::kCancelled);
}

// The others may wait in the next piece already.
TEST_F(RingStepsTest, AbortBreaksTheGroupOfAStepThatHasJustLeft) {
  Enter(1, PartOf(1, true));
  Leave();
  EXPECT_EQ(Run(steps_.Abort(1, kReason)), (Lines{"abort pieces"}));
  EXPECT_EQ(Run(steps_.Break(GroupOf(1), kReason)), Lines{}) << "it is broken";
  EXPECT_EQ(Enter(2, PartOf(2)), (Lines{"drop pieces", "make pieces 2"}));
  EXPECT_EQ(Run(steps_.Abort(1, kReason)), Lines{}) << "another step runs";
}

TEST_F(RingStepsTest, BreakTellsTheMembersOfTheGroup) {
  EXPECT_EQ(Run(steps_.Break(GroupOf(1), kReason)), (Lines{"refuse 1"}));
  Enter(1, PartOf(1));
  Leave();
  EXPECT_EQ(Run(steps_.Break(GroupOf(2), kReason)), (Lines{"refuse 2"}));
  EXPECT_EQ(Run(steps_.Break(GroupOf(1), kReason)), (Lines{"abort pieces"}));
}

TEST_F(RingStepsTest, StopBreaksWhatRunsAndWhatComes) {
  Enter(1, PartOf(1, true));
  EXPECT_EQ(Run(steps_.Stop()), (Lines{"abort pieces", "abort moves"}));
  EXPECT_EQ(Leave(kReason), (Lines{"drop pieces", "drop moves"}));
  EXPECT_EQ(Enter(2, PartOf(2)), (Lines{"make pieces 2", "abort pieces", "drop pieces"}));
  EXPECT_EQ(steps_.entry().code(), absl::StatusCode::kCancelled);
}

// Whatever happens in whatever order: groups are made once, dropped once, broken while they exist,
// and a step that was aborted never runs in a group that is whole.
TEST(RingStepsRandomTest, GroupsAreMadeAndDroppedInTurn) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto between = [&random](uint64_t low, uint64_t high) {
      return low + random() % (high - low + 1);
    };
    RingSteps steps;
    std::set<RingKind> there, broken, wanted;
    bool making = false, inside = false;
    RingKind next = RingKind::kPieces;  // that is being made
    uint64_t step = 0;
    const auto take = [&](const Effects& effects) {
      for (const RingEffect& effect : effects) {
        if (const auto* make = std::get_if<OpenRing>(&effect)) {
          EXPECT_EQ(there.count(make->group), 0u);
          making = true;
          next = make->group;
        } else if (const auto* drop = std::get_if<CloseRing>(&effect)) {
          EXPECT_EQ(there.erase(drop->group), 1u);
          broken.erase(drop->group);
        } else if (const auto* abort = std::get_if<AbortRing>(&effect)) {
          EXPECT_EQ(there.count(abort->group), 1u);
          EXPECT_TRUE(broken.insert(abort->group).second);
        }
      }
      const absl::Status invariants = steps.CheckInvariants();
      ASSERT_TRUE(invariants.ok()) << "seed " << seed << ": " << invariants;
    };
    for (int i = 0; i < 200; ++i) {
      const uint64_t what = between(0, 9);
      if (making && what < 6) {
        const bool made = between(0, 9) > 0;
        making = false;
        if (made) there.insert(next);
        take(steps.Opened(made ? absl::OkStatus() : kReason));
        inside = !making && steps.entry().ok();
        EXPECT_TRUE(!inside || there == wanted);
      } else if (what < 6 && inside) {
        inside = false;
        take(steps.Leave(between(0, 3) > 0 ? absl::OkStatus() : kReason));
      } else if (what < 6 && !making) {
        const uint64_t chunk = step / 3;
        const int members = between(0, 4) > 0 ? 4 : 1;
        const int tp = members == 1 ? 1 : 1 << chunk % 3;  // one for all pieces of a chunk
        wanted = {};
        if (members > 1) wanted.insert(RingKind::kPieces);
        if (tp > 1) wanted.insert(RingKind::kTensor);
        const RingPart part = PartOf(chunk, between(0, 1) > 0, members, tp);
        if (members > 1 && !part.piece.moves.empty()) wanted.insert(RingKind::kMoves);
        take(steps.Enter(++step, part));
        inside = !making && steps.entry().ok();
        EXPECT_TRUE(!inside || there == wanted);
      } else if (what < 8) {
        take(steps.Abort(between(step > 1 ? step - 1 : 0, step + 1), kReason));
      } else if (what == 8) {
        take(steps.Break(GroupOf(between(0, step / 3), between(0, 1) > 0), kReason));
      } else if (between(0, 49) == 0) {
        take(steps.Stop());
      }
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
