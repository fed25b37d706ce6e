#include "services/worker/engine/step_counts.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

using Totals = std::vector<StepTotals>;

std::vector<scheduler::StepSequence> SequencesOf(const std::vector<int64_t>& counts) {
  std::vector<scheduler::StepSequence> sequences;
  for (const int64_t count : counts) sequences.push_back({.count = count});
  return sequences;
}

scheduler::RunStep RingStepOf(size_t ranks, int64_t count, int tp = 1) {
  auto part = std::make_shared<scheduler::RingPart>();
  part->comm_addresses.resize(ranks);
  part->tp = tp;
  scheduler::RunStep step{.sequences = SequencesOf({count})};
  step.sequences.front().ring = part;
  return step;
}

TEST(StepCounts, OwnStepsAreThereFromTheStart) {
  EXPECT_EQ(StepCounts().Totals(), (Totals{{"own", 1, 0, 0}}));
}

TEST(StepCounts, StepsAndTheirTokensCountByModeAndRanks) {
  StepCounts counts;
  counts.Add(scheduler::RunStep{.sequences = SequencesOf({1, 30})});
  counts.Add(scheduler::RunStep{.sequences = SequencesOf({1})});
  counts.Add(RingStepOf(4, 8));
  counts.Add(RingStepOf(2, 0));  // its share may have no tokens
  counts.Add(RingStepOf(4, 9));
  counts.Add(RingStepOf(4, 10, 2));
  counts.Add(RingStepOf(4, 11, 4));
  counts.Add(scheduler::GroupStep{.mode = {1, 4}, .sequences = SequencesOf({3, 4})});
  counts.Add(scheduler::GroupStep{.mode = {4, 1}, .sequences = SequencesOf({5})});
  counts.Add(scheduler::GroupStep{.mode = {2, 2}, .sequences = SequencesOf({6})});
  counts.Add(scheduler::RunStep{.sequences = SequencesOf({2}), .group = scheduler::StepMode{1, 2}});
  EXPECT_EQ(counts.Totals(), (Totals{{"own", 1, 2, 32},
                                     {"ring", 2, 1, 0},
                                     {"ring", 4, 2, 17},
                                     {"ring_tp", 4, 2, 21},
                                     {"sp", 4, 1, 5},
                                     {"sp_tp", 4, 1, 6},
                                     {"tp", 2, 1, 2},
                                     {"tp", 4, 1, 7}}));
}

TEST(StepCounts, NeitherProbesNorAGroupsOwnStepsCount) {
  StepCounts counts;
  counts.Add(scheduler::RunStep{.sequences = SequencesOf({1}), .probe = true});
  counts.Add(scheduler::GroupStep{.mode = {}, .own_tokens = 16});
  EXPECT_EQ(counts.Totals(), (Totals{{"own", 1, 0, 0}}));
}

}  // namespace
}  // namespace skein::services
