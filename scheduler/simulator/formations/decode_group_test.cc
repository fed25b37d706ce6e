#include "scheduler/simulator/formations/decode_group.h"

#include <algorithm>
#include <array>
#include <set>

#include <gtest/gtest.h>

#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

using orchestrator::Subset;
using Phase = FormationTold::Phase;

using StepCounts = std::array<int64_t, kStepKinds>;

constexpr TimeUs kSecond = kSecondUs;

// Steps of 10 s and 1 s for each sequence; two or four instances are twice as fast.
DecodeGroupOptions Options(int32_t members) {
  return {.members = members,
          .blocks = 1000,
          .block_tokens = 10,
          .times = {.step_s = 10, .sequence_s = 1, .gains = {{2, 2}, {4, 2}}}};
}

class World {
 public:
  World(const DecodeGroupOptions& options, std::vector<SimRequest> of)
      : requests(std::move(of)), outcomes(requests.size()), group(options, &requests, &outcomes) {}

  // Advances from step to step, up to a time.
  void RunUntil(TimeUs until) {
    group.Advance(now);
    for (TimeUs next = group.NextEnd(); next <= until && next != kNever; next = group.NextEnd()) {
      group.Advance(now = next);
    }
    if (until != kNever) group.Advance(now = until);
  }
  void Come(size_t request, int32_t member, TimeUs at) {
    RunUntil(at);
    group.Place(request, member);
    group.Ready(request, at);
    group.Advance(at);
  }
  void Bind(uint64_t epoch, const Subset& subset) {
    for (int32_t i = subset.first; i < subset.end(); ++i) group.Prepare(i, {.epoch = epoch});
    group.Advance(now);
    group.Commit(epoch, subset, now);
    group.Advance(now);
  }
  std::multiset<Phase> Told() {
    std::multiset<Phase> phases;
    for (const auto& [member, told] : group.TakeTold()) phases.insert(told.phase);
    return phases;
  }

  const std::vector<SimRequest> requests;
  std::vector<DecodeOutcome> outcomes;
  DecodeGroup group;
  TimeUs now = 0;
};

TEST(DecodeGroupTest, OneAloneTakesItsSteps) {
  World world(Options(1), {{0, 100, 4}});
  world.Come(0, 0, 2 * kSecond);
  world.RunUntil(kNever);
  EXPECT_EQ(world.outcomes[0].started_us, 2 * kSecond);
  EXPECT_EQ(world.outcomes[0].second_us, 13 * kSecond);
  EXPECT_EQ(world.outcomes[0].last_us, 35 * kSecond);
  EXPECT_EQ(world.group.steps(), (StepCounts{3, 0, 0, 0}));
}

// The step behind the one that runs is settled already.
TEST(DecodeGroupTest, ARequestThatComesDuringAStepMissesTheNextOne) {
  World world(Options(1), {{0, 100, 10}, {0, 100, 2}});
  world.Come(0, 0, 0);
  world.Come(1, 0, 5 * kSecond);
  world.RunUntil(kNever);
  EXPECT_EQ(world.outcomes[1].started_us, 22 * kSecond);
  EXPECT_EQ(world.outcomes[1].second_us, 34 * kSecond);
}

TEST(DecodeGroupTest, ARequestThatComesDuringTheLastStepRunsInTheNextOne) {
  World world(Options(1), {{0, 100, 2}, {0, 100, 2}});
  world.Come(0, 0, 0);
  world.Come(1, 0, 5 * kSecond);
  world.RunUntil(kNever);
  EXPECT_EQ(world.outcomes[1].started_us, 11 * kSecond);
}

TEST(DecodeGroupTest, ABoundGroupIsFasterByItsGainAndSharesTheBlocks) {
  World world(Options(4), {{0, 80, 20}});
  world.group.BindForGood({0, 4});
  world.Come(0, 0, 0);
  EXPECT_EQ(world.group.free_blocks(), 4 * 1000 - 4 * 3) << "100 tokens in blocks of 40";
  world.RunUntil(kNever);
  EXPECT_EQ(world.outcomes[0].last_us, 19 * 11 * kSecond / 2);
  EXPECT_EQ(world.outcomes[0].size, 4);
  EXPECT_EQ(world.group.steps(), (StepCounts{0, 19 * 4, 0, 0}));
}

TEST(DecodeGroupTest, StepsOfManyTokensRunInSp) {
  DecodeGroupOptions options = Options(2);
  options.shifts = {{2, ShiftRule{.tokens = 2}}};
  World world(options, {{0, 80, 3}, {0, 80, 3}, {0, 80, 3}});
  world.group.BindForGood({0, 2});
  for (size_t r = 0; r < 3; ++r) {
    world.group.Place(r, 0);
    world.group.Ready(r, 0);
  }
  world.RunUntil(kNever);
  EXPECT_EQ(world.group.steps(), (StepCounts{0, 0, 2 * 2, 0}));
  EXPECT_EQ(world.outcomes[0].last_us, 2 * 12 * kSecond) << "two sequences of three at one rank";
}

// In SP 2 x TP 2 each two instances, twice as fast as one, run two sequences of three.
TEST(DecodeGroupTest, StepsOfManyTokensRunInTheBase) {
  for (const int64_t above : {2, 3}) {
    DecodeGroupOptions options = Options(4);
    options.shifts = {{4, ShiftRule{.tokens = above, .tp = 2}}};
    World world(options, {{0, 80, 3}, {0, 80, 3}, {0, 80, 3}});
    world.group.BindForGood({0, 4});
    for (size_t r = 0; r < 3; ++r) {
      world.group.Place(r, 0);
      world.group.Ready(r, 0);
    }
    world.RunUntil(kNever);
    const bool in_base = above == 2;
    EXPECT_EQ(world.group.steps(),
              (in_base ? StepCounts{0, 0, 0, 2 * 4} : StepCounts{0, 2 * 4, 0, 0}));
    EXPECT_EQ(world.outcomes[0].last_us, 2 * (in_base ? 12 : 13) * kSecond / 2);
  }
}

TEST(DecodeGroupTest, OnlyTheLeadOfABoundGroupHasRoom) {
  World world(Options(4), {{0, 80, 3}});
  world.Bind(7, {2, 2});
  std::vector<DecodeCandidate> candidates;
  world.group.AddCandidates(1, &candidates);
  ASSERT_EQ(candidates.size(), 4u);
  std::vector<int64_t> free;
  for (const DecodeCandidate& one : candidates) free.push_back(one.free_blocks);
  EXPECT_EQ(free, (std::vector<int64_t>{1000, 1000, 1000, 0}));
  EXPECT_EQ(world.Told(), (std::multiset<Phase>{Phase::kPrepared, Phase::kPrepared, Phase::kBound,
                                                Phase::kBound}));
}

// What ran before the bind and the group's take turns: each kind has one sequence.
TEST(DecodeGroupTest, OwnStepsAndTheGroupsTakeTurns) {
  World world(Options(2), {{0, 80, 60}, {0, 80, 60}});
  world.Come(0, 1, 0);
  world.Bind(7, {0, 2});
  world.RunUntil(30 * kSecond);
  ASSERT_EQ(world.Told().count(Phase::kBound), 2u);
  world.Come(1, 0, world.now);
  world.RunUntil(400 * kSecond);
  const auto [own, tp, sp, sp_tp] = world.group.steps();
  EXPECT_NEAR(static_cast<double>(own - 3) / static_cast<double>(tp / 2), 1, 0.1);
  EXPECT_EQ(sp + sp_tp, 0);
}

// As at decode-workers: only the kind of the next step is settled.
TEST(DecodeGroupTest, AnOwnRequestThatComesDuringARoundRunsInTheNextOne) {
  World world(Options(2), {{0, 80, 5}, {0, 80, 10}, {0, 80, 2}});
  world.Bind(7, {0, 2});
  world.group.Place(0, 0);  // on its way, so that the release waits for it
  world.group.End(0, 7, Switch::kSequential, world.now);
  world.Come(1, 1, 0);
  world.Come(2, 1, 5 * kSecond);
  world.RunUntil(100 * kSecond);
  EXPECT_EQ(world.Told().count(Phase::kEnded), 0u) << "still bound";
  EXPECT_EQ(world.outcomes[1].started_us, 0);
  EXPECT_EQ(world.outcomes[2].started_us, 11 * kSecond);
  EXPECT_EQ(world.outcomes[2].last_us, 23 * kSecond);
  world.group.Ready(0, world.now);
  world.RunUntil(kNever);
  EXPECT_EQ(world.group.finished(), 3);
}

TEST(DecodeGroupTest, ABindWaitsForWhatIsLaunched) {
  World world(Options(2), {{0, 80, 60}});
  world.Come(0, 1, 0);
  world.RunUntil(5 * kSecond);
  world.Bind(7, {0, 2});
  EXPECT_EQ(world.Told().count(Phase::kBound), 0u);
  world.RunUntil(22 * kSecond - 1);
  EXPECT_EQ(world.Told().count(Phase::kBound), 0u) << "the step ahead runs";
  world.RunUntil(22 * kSecond);
  EXPECT_EQ(world.Told().count(Phase::kBound), 2u);
}

TEST(DecodeGroupTest, ASequentialReleaseWaitsForTheGroupsRequests) {
  World world(Options(2), {{0, 80, 5}, {0, 80, 5}});
  world.Bind(7, {0, 2});
  world.Come(0, 0, 0);
  world.group.Place(1, 0);  // on its way
  world.group.End(0, 7, Switch::kSequential, world.now);
  world.RunUntil(100 * kSecond);
  EXPECT_EQ(world.Told().count(Phase::kEnded), 0u);
  world.group.Ready(1, world.now);
  world.RunUntil(kNever);
  EXPECT_EQ(world.Told().count(Phase::kEnded), 2u);
  EXPECT_EQ(world.group.steps()[0], 0);
  EXPECT_EQ(world.group.finished(), 2);
}

TEST(DecodeGroupTest, AHardReleaseLeavesRequestsToTheLead) {
  World world(Options(2), {{0, 80, 5}, {0, 80, 5}});
  world.Bind(7, {0, 2});
  world.Come(0, 0, 0);
  world.group.Place(1, 0);
  world.group.End(0, 7, Switch::kHard, world.now);
  world.RunUntil(kNever);
  world.group.Ready(1, world.now);
  world.RunUntil(kNever);
  EXPECT_EQ(world.Told().count(Phase::kEnded), 2u);
  EXPECT_GT(world.group.steps()[0], 0);
  EXPECT_GT(world.group.steps()[1], 0);
  EXPECT_EQ(world.group.finished(), 2);
  EXPECT_EQ(world.group.free_blocks(), 2000);
}

// At random binds, releases and arrivals every token comes once, and every block is free at last.
TEST(DecodeGroupTest, AtRandomNothingIsLost) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const auto draw = [&random](uint64_t below) {
      return static_cast<int64_t>(random.Below(below));
    };
    std::vector<SimRequest> requests;
    int64_t expected = 0;
    for (int r = 0; r < 40; ++r) {
      requests.push_back({0, 1 + draw(50), 1 + draw(30)});
      expected += requests.back().output_tokens - 1;
    }
    DecodeGroupOptions options = Options(8);
    options.batch_sequences = 1 + draw(6);
    options.shifts = {{4, ShiftRule{.tokens = 1, .tp = seed % 2 == 0 ? 1 : 2}}};
    World world(options, requests);
    uint64_t epoch = 0;
    std::vector<std::pair<uint64_t, Subset>> bound;
    std::vector<size_t> coming;
    for (size_t r = 0; r < requests.size();) {
      world.RunUntil(world.now + draw(40) * kSecond);
      const int64_t what = draw(6);
      if (what < 3) {
        std::vector<DecodeCandidate> candidates;
        world.group.AddCandidates(1, &candidates);
        const auto pick = PickDecode(candidates, 10);
        ASSERT_TRUE(pick.has_value());
        world.group.Place(r, static_cast<int32_t>(pick->value) - 1);
        coming.push_back(r++);
      } else if (what == 3 && !coming.empty()) {
        world.group.Ready(coming.front(), world.now);
        coming.erase(coming.begin());
      } else if (what == 4) {
        const auto size = int32_t{2} << draw(3);
        const Subset subset = {static_cast<int32_t>(draw(static_cast<uint64_t>(8 / size))) * size,
                               size};
        const bool taken = std::any_of(bound.begin(), bound.end(), [&](const auto& one) {
          return one.second.Overlaps(subset);
        });
        if (taken) continue;
        world.Bind(++epoch, subset);
        world.RunUntil(world.now + 100 * kSecond);
        bound.emplace_back(epoch, subset);
      } else if (what == 5 && !bound.empty()) {
        const auto [number, subset] = bound.back();
        bound.pop_back();
        const Switch how = draw(2) == 0 ? Switch::kHard : Switch::kSequential;
        world.group.End(subset.first, number, how, world.now);
        for (const size_t one : coming) world.group.Ready(one, world.now);
        coming.clear();
        world.RunUntil(world.now + 100'000 * kSecond);
      }
    }
    for (const size_t one : coming) world.group.Ready(one, world.now);
    world.RunUntil(kNever);
    EXPECT_TRUE(world.group.Idle()) << seed;
    EXPECT_EQ(world.group.finished(), 40) << seed;
    EXPECT_EQ(world.group.free_blocks(), 8 * 1000) << seed;
    int64_t made = 0;
    for (const auto& [at, count] : world.group.tokens()) made += count;
    EXPECT_EQ(made, expected) << seed;
    for (size_t r = 0; r < requests.size(); ++r) {
      const DecodeOutcome& outcome = world.outcomes[r];
      EXPECT_EQ(outcome.started_us == kNever, requests[r].output_tokens == 1);
      if (outcome.started_us == kNever) continue;
      EXPECT_LE(outcome.ready_us, outcome.started_us) << seed;
      EXPECT_LT(outcome.started_us, outcome.second_us) << seed;
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
