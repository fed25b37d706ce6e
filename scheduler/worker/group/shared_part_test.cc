#include "scheduler/worker/group/shared_part.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {
namespace {

using Act = OrderMode::Act;
using Lines = std::vector<std::string>;

std::string Text(const SharingCall& call) {
  if (const auto* prepare = std::get_if<PrepareShared>(&call)) {
    return absl::StrCat("prepare ", prepare->epoch, " ", ToString(prepare->mode));
  }
  if (const auto* enter = std::get_if<EnterShared>(&call)) {
    return absl::StrCat("enter ", ToString(enter->mode));
  }
  if (const auto* ready = std::get_if<ReadyMode>(&call)) {
    return absl::StrCat("ready ", ToString(ready->mode));
  }
  if (const auto* set = std::get_if<SetMode>(&call)) {
    return absl::StrCat("set ", ToString(set->mode));
  }
  return std::get<LeaveShared>(call).how == Switch::kHard ? "leave hard" : "leave";
}

std::string Text(const SharedEffect& effect) {
  if (const auto* call = std::get_if<CallSharing>(&effect)) return Text(call->call);
  if (const auto* mode = std::get_if<TellMode>(&effect)) {
    constexpr const char* kPhases[] = {"is ready", "has set", "refuses"};
    return absl::StrCat(kPhases[static_cast<int>(mode->told.phase)], " ", mode->told.turn);
  }
  const FormationTold& told = std::get<TellFormation>(effect).told;
  constexpr const char* kPhases[] = {"prepared", "bound", "ended"};
  return absl::StrCat(kPhases[static_cast<int>(told.phase)], " ", told.epoch,
                      told.why.ok() ? "" : ": ", std::string(told.why.message()));
}

uint64_t NumberOf(const SharingCall& call) {
  return std::visit([](const auto& one) { return one.call; }, call);
}

class SharedPartTest : public ::testing::Test {
 protected:
  void Prepare(uint64_t epoch, SharedMode mode = SharedMode::kWas) {
    part_.Prepare(
        {.epoch = epoch, .generation = 3, .first = 2, .size = 2, .keep_us = 100, .shared = mode},
        now_);
  }
  // The engine answers its latest call.
  absl::Status Answer(absl::Status status = absl::OkStatus()) {
    return part_.Done({NumberOf(*call_), std::move(status)}, now_);
  }
  void EnterEpoch(uint64_t epoch, SharedMode mode = SharedMode::kWas) {
    Prepare(epoch, mode);
    EXPECT_TRUE(Answer().ok());
    part_.Commit({epoch}, now_);
    part_.AtPause(now_);
    EXPECT_TRUE(Answer().ok());
    Took();
  }
  void Order(uint64_t turn, Act act, SharedMode mode = SharedMode::kCas) {
    part_.Order({.epoch = 5, .turn = turn, .mode = mode, .act = act});
  }
  Lines Took() {
    EXPECT_TRUE(part_.CheckInvariants().ok()) << part_.CheckInvariants();
    return std::exchange(lines_, {});
  }

  TimeUs now_ = 1'000;
  Lines lines_;
  std::optional<SharingCall> call_;
  SharedPart part_{absl::OkStatus(), [this](const SharedEffect& effect) {
                     lines_.push_back(Text(effect));
                     if (const auto* call = std::get_if<CallSharing>(&effect)) call_ = call->call;
                   }};
};

TEST_F(SharedPartTest, EntersAndLeavesBetweenSteps) {
  Prepare(5);
  EXPECT_EQ(Took(), Lines{"prepare 5 was"});
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{"prepared 5"});
  EXPECT_FALSE(part_.WantsPause());
  part_.Commit({5}, now_ += 10);
  EXPECT_TRUE(part_.WantsPause());
  EXPECT_EQ(Took(), Lines{}) << "a step runs";
  part_.AtPause(now_ += 3);
  part_.AtPause(now_);
  EXPECT_EQ(Took(), Lines{"enter was"});
  EXPECT_FALSE(part_.mode().has_value());
  now_ += 4;
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{"bound 5"});
  EXPECT_EQ(part_.told().drain_us, 3);
  EXPECT_EQ(part_.told().cut_over_us, 7);
  EXPECT_EQ(part_.mode(), SharedMode::kWas);
  EXPECT_FALSE(part_.WantsPause());
  part_.Commit({5}, now_);
  EXPECT_EQ(Took(), Lines{}) << "repeated";
  part_.End({5, Switch::kSequential, absl::CancelledError("ordered")}, now_);
  EXPECT_TRUE(part_.WantsPause());
  part_.AtPause(now_);
  EXPECT_EQ(Took(), Lines{"leave"});
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{"ended 5: ordered"});
  EXPECT_FALSE(part_.WantsPause() || part_.holds_any() || part_.mode());
}

TEST_F(SharedPartTest, AnEngineThatCannotShareRefusesByName) {
  SharedPart part(absl::UnimplementedError("engine: 'cpu' cannot share its weights"),
                  [&](const SharedEffect& effect) { lines_.push_back(Text(effect)); });
  part.Prepare({.epoch = 5, .size = 2, .shared = SharedMode::kWas}, now_);
  EXPECT_EQ(lines_, Lines{"ended 5: engine: 'cpu' cannot share its weights"});
  EXPECT_FALSE(part.holds_any());
}

TEST_F(SharedPartTest, WhatCannotBePreparedIsRefusedByName) {
  EnterEpoch(5);
  Prepare(5);
  EXPECT_EQ(Took(), Lines{"ended 5: epoch: 5 is not above 5"});
  part_.Prepare({.epoch = 6, .first = 1, .size = 2, .shared = SharedMode::kWas}, now_);
  EXPECT_EQ(Took(), Lines{"ended 6: first, size: 1, 2 are no aligned power of two"});
  Prepare(6);
  EXPECT_EQ(Took(), Lines{"ended 6: this instance shares its weights under epoch 5"});
  EXPECT_EQ(part_.mode(), SharedMode::kWas);
  part_.End({7, Switch::kHard, absl::CancelledError("x")}, now_);
  part_.Commit({7}, now_);
  EXPECT_EQ(Took(), (Lines{"ended 7: this epoch is not known here",
                           "ended 7: this epoch is not prepared here"}));
}

TEST_F(SharedPartTest, WhatTheEngineRefusesLeavesItAlone) {
  Prepare(5);
  EXPECT_TRUE(Answer(absl::ResourceExhaustedError("no slots")).ok());
  EXPECT_EQ(Took().back(), "ended 5: no slots");
  Prepare(6);
  EXPECT_TRUE(Answer().ok());
  part_.Commit({6}, now_);
  part_.AtPause(now_);
  EXPECT_TRUE(Answer(absl::InternalError("no link")).ok());
  EXPECT_EQ(Took().back(), "ended 6: no link");
  EXPECT_FALSE(part_.holds_any());
}

TEST_F(SharedPartTest, WhatIsNotEnteredInTimeIsForgotten) {
  Prepare(5);
  EXPECT_EQ(part_.NextTick(), now_ + 100);
  EXPECT_TRUE(Answer().ok());
  part_.Tick(now_ + 99);
  EXPECT_TRUE(part_.Holds(5));
  part_.Tick(now_ + 100);
  EXPECT_EQ(Took().back(), "ended 5: no order to enter came");
  EXPECT_EQ(part_.NextTick(), kNever);
  Prepare(6);
  part_.Registered(0);
  EXPECT_EQ(Took().back(), "ended 6: a stream to the orchestrator began before it was told");
  EnterEpoch(7);
  part_.Registered(0);
  EXPECT_TRUE(part_.Holds(7));
}

TEST_F(SharedPartTest, TheModeChangesWhenItIsSet) {
  EnterEpoch(5);
  Order(1, Act::kSet);
  EXPECT_EQ(Took(), Lines{}) << "it is not ready";
  Order(1, Act::kReady);
  Order(1, Act::kReady);
  EXPECT_EQ(Took(), Lines{"ready cas"});
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{"is ready 1"});
  Order(1, Act::kReady);
  EXPECT_EQ(Took(), Lines{"is ready 1"}) << "repeated";
  EXPECT_FALSE(part_.WantsPause());
  Order(1, Act::kSet);
  EXPECT_TRUE(part_.WantsPause());
  part_.AtPause(now_);
  Order(1, Act::kSet);
  EXPECT_EQ(Took(), Lines{"set cas"});
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{"has set 1"});
  EXPECT_EQ(part_.mode(), SharedMode::kCas);
  EXPECT_FALSE(part_.WantsPause());
  Order(1, Act::kSet);
  EXPECT_EQ(Took(), Lines{"has set 1"}) << "repeated";
  Order(1, Act::kDrop);
  EXPECT_EQ(part_.mode(), SharedMode::kCas);
}

TEST_F(SharedPartTest, ATurnThatIsRefusedOrDroppedIsNotSet) {
  EnterEpoch(5);
  Order(1, Act::kReady);
  EXPECT_TRUE(Answer(absl::ResourceExhaustedError("no room")).ok());
  EXPECT_EQ(Took().back(), "refuses 1");
  Order(1, Act::kSet);
  EXPECT_FALSE(part_.WantsPause());
  Order(2, Act::kReady);
  EXPECT_TRUE(Answer().ok());
  Order(2, Act::kDrop);
  Order(2, Act::kSet);
  EXPECT_FALSE(part_.WantsPause());
  Order(1, Act::kReady);
  EXPECT_EQ(part_.mode(), SharedMode::kWas);
}

TEST_F(SharedPartTest, OneThatCannotSetItsModeLeaves) {
  EnterEpoch(5);
  Order(1, Act::kReady);
  EXPECT_TRUE(Answer().ok());
  Order(1, Act::kSet);
  part_.AtPause(now_);
  EXPECT_TRUE(Answer(absl::InternalError("a link broke")).ok());
  part_.AtPause(now_);
  EXPECT_EQ(Took().back(), "leave hard");
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{"ended 5: a link broke"});
}

TEST_F(SharedPartTest, AnOrderToLeaveWaitsForWhatIsUnderWay) {
  Prepare(5);
  EXPECT_TRUE(Answer().ok());
  part_.Commit({5}, now_);
  part_.AtPause(now_);
  part_.Abandon(absl::UnavailableError("shutting down"), now_);
  Took();
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{}) << "it was never bound";
  ASSERT_TRUE(part_.WantsPause());
  part_.AtPause(now_);
  EXPECT_EQ(Took(), Lines{"leave hard"});
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(Took(), Lines{"ended 5: shutting down"});
}

TEST_F(SharedPartTest, WeightsThatAreNotReadBackFailTheEngine) {
  EnterEpoch(5);
  part_.End({5, Switch::kHard, absl::CancelledError("ordered")}, now_);
  part_.AtPause(now_);
  EXPECT_EQ(Answer(absl::DataLossError("no file")), absl::DataLossError("no file"));
  EXPECT_EQ(Took().back(), "ended 5: no file");
  EnterEpoch(6);
  part_.Fail(absl::InternalError("the engine has failed"));
  EXPECT_EQ(Took(), Lines{"ended 6: the engine has failed"});
  EXPECT_FALSE(part_.WantsPause());
}

// Whatever is ordered and answered, in any order: the invariants hold, each call has its own
// number, steps wait only while something is under way, and at the end the instance is alone.
TEST(SharedPartRandomTest, WhateverIsOrderedTheInvariantsHold) {
  int64_t entered = 0, set = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    uint64_t state = seed;
    const auto random = [&](uint64_t below) { return Mix64(state += kMix64Step) % below; };
    std::vector<SharingCall> calls;  // not answered
    uint64_t last_call = 0, epoch = 1, turn = 1;
    TimeUs now = 0;
    SharedPart part(absl::OkStatus(), [&](const SharedEffect& effect) {
      if (const auto* call = std::get_if<CallSharing>(&effect)) {
        EXPECT_GT(NumberOf(call->call), std::exchange(last_call, NumberOf(call->call)));
        calls.push_back(call->call);
      }
      const auto* told = std::get_if<TellFormation>(&effect);
      entered += told != nullptr && told->told.phase == FormationTold::Phase::kBound;
      const auto* mode = std::get_if<TellMode>(&effect);
      set += mode != nullptr && mode->told.phase == ModeTold::Phase::kSet;
    });
    const auto answer = [&](bool ok) {
      if (calls.empty()) return;
      const SharingCall call = calls.front();
      calls.erase(calls.begin());
      // Weights are always read back here: what follows otherwise is the owner's.
      const bool fails = !ok && !std::holds_alternative<LeaveShared>(call);
      EXPECT_TRUE(
          part.Done({NumberOf(call), fails ? absl::InternalError("no") : absl::OkStatus()}, now)
              .ok());
    };
    for (int i = 0; i < 3'000; ++i) {
      now += static_cast<TimeUs>(random(20));
      const uint64_t of = random(10) == 0 ? random(epoch + 2) : epoch;
      switch (random(12)) {
        case 0:
          part.Prepare({.epoch = part.holds_any() && random(4) > 0 ? epoch : ++epoch,
                        .size = 2,
                        .keep_us = 100,
                        .shared = static_cast<SharedMode>(random(2))},
                       now);
          break;
        case 1:
        case 2:
          part.Commit({of}, now);
          break;
        case 3:
          if (random(4) == 0) {
            part.End({of, static_cast<Switch>(random(2)), absl::CancelledError("x")}, now);
          }
          break;
        case 4:
          part.Tick(now);
          break;
        case 5:
          if (random(8) == 0) part.Abandon(absl::UnavailableError("x"), now);
          break;
        case 6:
        case 7:
        case 8:
          if (random(6) == 0) ++turn;
          part.Order({of, turn - random(2), static_cast<SharedMode>(random(2)),
                      static_cast<Act>(random(8) == 0 ? 2 : random(2))});
          break;
        case 9:
          if (part.WantsPause()) part.AtPause(now);
          break;
        default:
          answer(random(10) > 0);
      }
      ASSERT_TRUE(part.CheckInvariants().ok()) << part.CheckInvariants();
    }
    for (uint64_t held = 1; held <= epoch; ++held) {
      if (part.Holds(held)) part.End({held, Switch::kHard, absl::CancelledError("x")}, now);
    }
    for (int i = 0; i < 4; ++i) {
      while (!calls.empty()) answer(true);
      if (part.WantsPause()) part.AtPause(now);
    }
    part.Tick(now + 1'000);
    EXPECT_FALSE(part.holds_any() || part.WantsPause());
  }
  EXPECT_GE(entered, 300);
  EXPECT_GE(set, 300);
}

}  // namespace
}  // namespace skein::scheduler
