// What an event or a question costs OrchestratorCore while there are many requests or instances:
// counted in allocations, which do not depend on the machine.
#include <cstdlib>
#include <new>

#include "scheduler/orchestrator/testing/planning_testing.h"

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

class OrchestratorCostTest : public PlanningTest {
 protected:
  // Without the checks of Do, which walk over all.
  int64_t AllocationsOf(const OrchestratorEvent& event) {
    const int64_t before = allocations;
    core_->Handle(event, now_);
    return allocations - before;
  }
  void Begin(const char* policy) {
    Make(policy);
    serials_ = 0;
    UpPrefill(2);
    Up(Role::kDecode, ++last_incarnation_);
  }
  void SubmitMany(int count) {
    for (int i = 0; i < count; ++i) {
      core_->Handle(SubmitCalled{Spec(++serials_, 8)}, now_);
    }
  }

  uint64_t serials_ = 0;
};

TEST_F(OrchestratorCostTest, AQuestionByNameDoesNotGrowWithTheRequests) {
  const auto cost = [this](int requests) {
    Begin("single");
    SubmitMany(requests);
    const int64_t before = allocations;
    EXPECT_EQ(core_->Explain("cmpl-1", now_).size(), 1u);
    return allocations - before;
  };
  EXPECT_EQ(cost(1000), cost(10));
}

// The rolling planner decides where something has changed, and nowhere else.
TEST_F(OrchestratorCostTest, AnEventOfOneModelDoesNotPlanAnother) {
  const auto cost = [this](int requests) {
    Begin("rolling");
    SubmitMany(requests);  // of m: some of them wait
    EXPECT_EQ(core_->Totals().planning > 0, requests > 1);
    WorkerIdentity other = Identity(Role::kPrefill, ++last_incarnation_);
    other.model = "other";
    return AllocationsOf(RegisterCalled{Call(), {.identity = other}});
  };
  EXPECT_EQ(cost(200), cost(1));
}

// With its decode place. That its choice looks at few of them: freeness_order_test.
TEST_F(OrchestratorCostTest, WhatAPlanAllocatesDoesNotGrowWithTheInstances) {
  const auto cost = [this](int instances) {
    Make("single");
    serials_ = 0;
    UpPrefill(instances);
    for (int i = 0; i < instances; ++i) Up(Role::kDecode, ++last_incarnation_);
    SubmitMany(2);  // the pools are laid out
    return AllocationsOf(SubmitCalled{Spec(++serials_, 8)});
  };
  EXPECT_EQ(cost(512), cost(32));
}

}  // namespace
}  // namespace skein::scheduler
