// What a bound group runs does not depend on --reproducible: for the same requests every rank
// computes the same tokens, in TP and in SP, with and without reproducible operations.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "services/worker/group/testing/bound_workers.h"

namespace skein::services {
namespace {

using scheduler::Switch;
using testing::BoundWorkers;

constexpr int kBlocks = 240;  // for all requests at once: none is computed again
constexpr uint64_t kRequests = 6;

uint64_t TokensOf(const std::vector<StepTotals>& steps) {
  uint64_t tokens = 0;
  for (const StepTotals& one : steps) tokens += one.tokens;
  return tokens;
}

// The tokens that each rank has computed, once and together with the others.
uint64_t TokensComputed(const std::string& dir, int size, const std::string& reproducible) {
  BoundWorkers group(dir, size, kBlocks, reproducible);
  group.Bind();
  group.lead().engine().Hold();
  for (uint64_t serial = 1; serial <= kRequests; ++serial) {
    const auto prompt = static_cast<int64_t>(5 + serial * 11 % 40);
    group.lead().StartInGroup(
        testing::TinyRequest(serial, prompt, static_cast<int64_t>(8 + serial)), group.epoch());
  }
  group.lead().engine().Go();
  EXPECT_EQ(group.lead().Answers().size(), kRequests);
  group.Release(Switch::kSequential);
  const std::vector<StepTotals> steps = group.lead().GroupSteps();
  EXPECT_EQ(steps.size(), 2u) << "of TP, and of SP above the ordered number of tokens";
  for (const StepTotals& one : steps) {
    std::printf("--reproducible=%s, %s %d: %ld steps, %ld tokens\n", reproducible.c_str(),
                one.mode.c_str(), one.ranks, static_cast<long>(one.steps),
                static_cast<long>(one.tokens));
    EXPECT_GT(one.steps, 0u);
  }
  for (const auto& worker : group.workers()) EXPECT_EQ(worker->GroupSteps(), steps);
  return TokensOf(steps);
}

class ReproducibleGroup : public ::testing::TestWithParam<int> {};

TEST_P(ReproducibleGroup, ComputesWhatOneThatIsNotComputes) {
  const std::string dir = testing::WriteTinyModel("reproducible_group");
  uint64_t expected = 0;
  for (uint64_t serial = 1; serial <= kRequests; ++serial) {
    expected += 5 + serial * 11 % 40 + 8 + serial - 1;  // not the last one that is sampled
  }
  EXPECT_EQ(TokensComputed(dir, GetParam(), "on"), expected);
  EXPECT_EQ(TokensComputed(dir, GetParam(), "off"), expected);
}

INSTANTIATE_TEST_SUITE_P(OfSize, ReproducibleGroup, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::services
