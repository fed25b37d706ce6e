// A share of the shape of Dynamo's issue 13088 (many.cc runs all of it): no request hangs.
#include <gtest/gtest.h>

#include "tests/sim/many_worlds.h"
#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr ManyShape kShare{.prefill = 5,
                           .decode = 50,
                           .clients = 26,
                           .requests = 60,
                           .prompt_tokens = 2048,
                           .checks_every = 1};

TEST(ManySimTest, EachOfManyLongPromptsIsAnswered) {
  const Outcome outcome = RunWorld(MakeManyScenario(kShare));
  EXPECT_EQ(outcome.violation, "");
  EXPECT_EQ(outcome.finished, outcome.requests);
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(
      argc, argv, [](uint64_t) { return skein::sim::MakeManyScenario(skein::sim::kShare); });
}
