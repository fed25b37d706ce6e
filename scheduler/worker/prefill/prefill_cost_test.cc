// What an event costs a prefill-worker's core while the first request of the queue waits for
// blocks: counted in allocations, which do not depend on the machine.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace {
int64_t allocations = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace skein::scheduler {
namespace {

constexpr int64_t kBlocks = 4000;
constexpr int64_t kBlockTokens = 4;  // of testing::Identity
constexpr uint64_t kSelf = 3;

PrefillConfig Config() {
  PrefillConfig config;
  config.membership.identity = testing::Identity(Role::kPrefill, kBlocks);
  config.batch = {.max_batch_tokens = 8};
  return config;
}

// A plan whose first chunk this instance computes with another; later chunks are not known yet.
AssignRequest Plan(int64_t prompt_tokens) {
  return {.spec = testing::Spec(2, prompt_tokens),
          .epoch = {5},
          .sequence = {10},
          .members = {{{1}, {7}, "w1", "c1"}, {{kSelf}, {9}, "w3", "c3"}},
          .chunks = {{.tokens = prompt_tokens / 2, .members = {0, 1}}}};
}

// Of an event that changes nothing, while such a plan waits for blocks that a plain request holds.
int64_t AllocationsOfATick(int64_t prompt_tokens) {
  PrefillCore core(Config());
  core.Handle(Tick{}, 0);
  core.Handle(RegisterReplied{{absl::OkStatus(), {kSelf}, 1'000'000'000}}, 0);
  core.Handle(AssignCalled{{1}, {testing::Spec(1, kBlocks * kBlockTokens), {5}, {1}}}, 0);
  core.Handle(AssignCalled{{2}, Plan(prompt_tokens)}, 0);
  EXPECT_EQ(core.Snapshot(0).queued, 1);
  core.Handle(Tick{}, 0);
  const int64_t before = allocations;
  core.Handle(Tick{}, 0);
  return allocations - before;
}

TEST(PrefillCost, AnEventDoesNotGrowWithThePromptThatWaitsForBlocks) {
  EXPECT_EQ(AllocationsOfATick(8000), AllocationsOfATick(32));
}

}  // namespace
}  // namespace skein::scheduler
