// What a bound group runs does not depend on --reproducible: for the same requests every rank runs
// the same steps, one by one, in TP and in SP, with and without reproducible operations.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "services/worker/group/testing/bound_workers.h"

namespace skein::services {
namespace {

using scheduler::Switch;
using testing::BoundWorker;
using testing::BoundWorkers;
using testing::SeenGroupStep;

constexpr int kBlocks = 240;  // for all requests at once: none is computed again
constexpr int kRequests = 6;
constexpr int64_t kOpenerTokens = 8;  // of output

int64_t PromptOf(int serial) { return 5 + serial * 11 % 40; }
int64_t OutputOf(int serial) { return 8 + serial; }

// One request is computed first. While its first step is held, and its second one has been planned,
// the lead plans none: so all others have joined when it plans the third one.
void StartAll(BoundWorkers* group) {
  BoundWorker& lead = group->lead();
  const int64_t block = int64_t{testing::kTinyBlockTokens} * group->size();
  lead.engine().Hold();
  lead.StartInGroup(testing::TinyRequest(kRequests + 1, block, kOpenerTokens), group->epoch());
  // The token that the second step runs is the first one of another block.
  BoundWorkers::AwaitThat([&] { return lead.Look().group_blocks == 2; });
  for (int serial = 1; serial <= kRequests; ++serial) {
    const auto number = static_cast<uint64_t>(serial);
    lead.StartInGroup(testing::TinyRequest(number, PromptOf(serial), OutputOf(serial)),
                      group->epoch());
  }
  BoundWorkers::AwaitThat([&] { return lead.Look().bound == kRequests + 1; });
  lead.engine().Go();
}

// What each rank has run.
std::vector<SeenGroupStep> StepsOf(const std::string& dir, int size,
                                   const std::string& reproducible) {
  BoundWorkers group(dir, size, kBlocks, reproducible);
  group.Bind();
  StartAll(&group);
  EXPECT_EQ(group.lead().Answers().size(), size_t{kRequests + 1});
  group.Release(Switch::kSequential);
  std::vector<SeenGroupStep> steps = group.lead().engine().GroupSteps();
  for (const auto& worker : group.workers()) EXPECT_EQ(worker->engine().GroupSteps(), steps);
  return steps;
}

class ReproducibleGroup : public ::testing::TestWithParam<int> {};

TEST_P(ReproducibleGroup, RunsTheStepsOfOneThatIsNot) {
  const int size = GetParam();
  const std::string dir = testing::WriteTinyModel("reproducible_group");
  const std::vector<SeenGroupStep> steps = StepsOf(dir, size, "on");
  EXPECT_EQ(StepsOf(dir, size, "off"), steps);

  int64_t expected = int64_t{testing::kTinyBlockTokens} * size + kOpenerTokens - 1;
  for (int serial = 1; serial <= kRequests; ++serial) {
    expected += PromptOf(serial) + OutputOf(serial) - 1;  // not the last one that is sampled
  }
  int64_t tokens = 0;
  int tp_steps = 0, sp_steps = 0;
  for (const SeenGroupStep& step : steps) {
    for (const testing::SeenSequence& one : step.sequences) tokens += one.count;
    EXPECT_EQ(step.mode.ranks(), size);
    ++(step.mode.sp > 1 ? sp_steps : tp_steps);
  }
  std::printf("%d ranks: %d steps in TP, %d in SP, %ld tokens\n", size, tp_steps, sp_steps,
              static_cast<long>(tokens));
  EXPECT_EQ(tokens, expected);
  EXPECT_GT(tp_steps, 0);
  EXPECT_GT(sp_steps, 0);
}

INSTANTIATE_TEST_SUITE_P(OfSize, ReproducibleGroup, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::services
