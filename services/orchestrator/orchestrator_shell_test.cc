#include "services/orchestrator/orchestrator_shell.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/shell/spaced_check.h"

namespace skein::services {
namespace {

scheduler::RegisterCalled Registration(uint64_t number = 1) {
  scheduler::RegisterCalled event{{number}, {}};
  event.request.identity = {
      .model = "m", .endpoint = absl::StrCat("host:", number), .incarnation = {number}};
  event.request.identity.shape.block_tokens = event.request.identity.shape.num_layers = 1;
  event.request.identity.total_blocks = 1;
  return event;
}

class OrchestratorShellTest : public ::testing::Test {
 protected:
  OrchestratorShellTest() : shell_(scheduler::OrchestratorConfig{}, 100) { shell_.Start(); }

  OrchestratorShell shell_;
};

// However many ask, and however often.
TEST_F(OrchestratorShellTest, ReadersShareOneCopyAndCheckNoInvariants) {
  const int64_t begin_us = MonotonicUs();
  for (int i = 0; i < 2000; ++i) {
    ASSERT_NE(shell_.Look(), nullptr);
    ASSERT_TRUE(shell_.LookLater(
        [](const OrchestratorShell::Copy& copy) { EXPECT_TRUE(copy.snapshot.instances.empty()); }));
    const auto counts = shell_.Count();
    ASSERT_TRUE(counts.has_value());
    EXPECT_EQ(counts->snapshot.submitted, 0u);
    EXPECT_TRUE(counts->invariants.ok());
  }
  const int64_t took_us = MonotonicUs() - begin_us;
  EXPECT_LE(shell_.copies_made(),
            static_cast<uint64_t>(took_us / OrchestratorShell::kCopyAgeUs + 1));
  EXPECT_EQ(shell_.checks_made(), 0u);
}

// As routers ask while the workers of a whole cluster come back: no answer costs a walk over them,
// and each tells of those that came before it.
TEST_F(OrchestratorShellTest, ListingModelsWhileWorkersRegisterCopiesNoInstances) {
  for (uint64_t number = 1; number <= 100; ++number) {
    shell_.Post(Registration(number));
    ASSERT_TRUE(shell_.Inspect([](const auto&, const absl::Status&) {}));  // it is handled
    std::promise<uint64_t> instances;
    ASSERT_TRUE(shell_.ListModelsLater([&](const v1::ListModelsResponse& models) {
      EXPECT_EQ(models.instance_lease_us(), 3'000'000u);
      instances.set_value(models.models(0).prefill_instances());
    }));
    EXPECT_EQ(instances.get_future().get(), number);
  }
  EXPECT_EQ(shell_.copies_made(), 0u);
}

TEST_F(OrchestratorShellTest, InvariantsAreCheckedAtMostOnceInAWhile) {
  const int64_t begin_us = MonotonicUs();
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(shell_.CheckInvariants().ok());
  const int64_t took_us = MonotonicUs() - begin_us;
  EXPECT_GE(shell_.checks_made(), 1u);
  EXPECT_LE(shell_.checks_made(), static_cast<uint64_t>(took_us / SpacedCheck::kSpacingUs + 1));
}

TEST_F(OrchestratorShellTest, AStoppedShellHasNothingToShow) {
  shell_.Stop();
  EXPECT_EQ(shell_.Look(), nullptr);
  EXPECT_FALSE(shell_.LookLater([](const OrchestratorShell::Copy&) {}));
  EXPECT_FALSE(shell_.ListModelsLater([](const v1::ListModelsResponse&) {}));
  EXPECT_FALSE(shell_.Count().has_value());
  EXPECT_TRUE(absl::IsUnavailable(shell_.CheckInvariants()));
}

// What /metrics and /status read does not wait for the messages before it.
TEST_F(OrchestratorShellTest, CountsAreTakenAheadOfTheMessagesThatWait) {
  std::promise<void> entered, released;
  std::thread holds([&] {
    shell_.Inspect([&](const scheduler::OrchestratorSnapshot&, const absl::Status&) {
      entered.set_value();
      released.get_future().wait();
    });
  });
  entered.get_future().wait();
  shell_.Post(Registration());
  auto counts = shell_.StartCount();
  released.set_value();
  holds.join();
  EXPECT_EQ(counts.get()->snapshot.prefill_instances, 0);
  EXPECT_TRUE(shell_.Inspect([](const auto&, const absl::Status&) {}));
  EXPECT_EQ(shell_.Count()->snapshot.prefill_instances, 1);
}

// As every shell of a core: events are taken before the start, and anybody may look at a snapshot.
TEST(OrchestratorShellStartTest, WhatWasPostedBeforeTheStartIsHandled) {
  OrchestratorShell shell(scheduler::OrchestratorConfig{}, 100);
  shell.Post(Registration());
  shell.Start();
  EXPECT_TRUE(shell.Inspect(
      [](const scheduler::OrchestratorSnapshot& snapshot, const absl::Status& invariants) {
        EXPECT_EQ(snapshot.prefill_instances, 1);
        EXPECT_TRUE(invariants.ok());
      }));
}

}  // namespace
}  // namespace skein::services
