#include "services/orchestrator/status_answers.h"

#include <gtest/gtest.h>

namespace skein::services {
namespace {

scheduler::InstanceStatus Instance(const std::string& model, scheduler::Role role,
                                   int64_t max_positions, bool draining = false) {
  scheduler::InstanceStatus instance;
  instance.identity.model = model;
  instance.identity.role = role;
  instance.identity.max_positions = max_positions;
  instance.load.draining = draining;
  return instance;
}

TEST(ModelListTest, CountsWhatIsThereAlsoWhereARoleIsMissing) {
  scheduler::OrchestratorSnapshot snapshot;
  snapshot.instances = {Instance("half", scheduler::Role::kPrefill, 100),
                        Instance("whole", scheduler::Role::kPrefill, 100),
                        Instance("whole", scheduler::Role::kDecode, 80),
                        Instance("whole", scheduler::Role::kDecode, 90),
                        Instance("whole", scheduler::Role::kDecode, 70, /*draining=*/true)};
  v1::ListModelsResponse out;
  FillModels(snapshot, &out);
  ASSERT_EQ(out.models_size(), 2);
  EXPECT_EQ(out.models(0).model(), "half");
  EXPECT_EQ(out.models(0).prefill_instances(), 1u);
  EXPECT_EQ(out.models(0).decode_instances(), 0u);
  EXPECT_EQ(out.models(1).prefill_instances(), 1u);
  EXPECT_EQ(out.models(1).decode_instances(), 2u);
  EXPECT_EQ(out.models(1).max_positions(), 80u);
}

// Otherwise nobody would see that a cluster is full: what waits there has no instance yet.
TEST(ModelListTest, WhatWaitsAtTheOrchestratorCountsAsWaiting) {
  scheduler::OrchestratorSnapshot snapshot;
  snapshot.instances = {Instance("m", scheduler::Role::kPrefill, 100),
                        Instance("m", scheduler::Role::kDecode, 100)};
  snapshot.instances[0].load.queued_requests = 3;
  snapshot.instances[1].load.queued_requests = 2;  // in prefill meanwhile
  snapshot.waiting_here = {{"m", 4}, {"gone", 1}};
  v1::ListModelsResponse out;
  FillModels(snapshot, &out);
  ASSERT_EQ(out.models_size(), 1);
  EXPECT_EQ(out.models(0).waiting(), 7u);
}

TEST(ModelListTest, BlocksAreThoseOfTheDecodeInstances) {
  scheduler::OrchestratorSnapshot snapshot;
  snapshot.instances = {Instance("m", scheduler::Role::kDecode, 100),
                        Instance("m", scheduler::Role::kPrefill, 100)};
  snapshot.instances[0].identity.shape.block_tokens = 16;
  snapshot.instances[0].load.total_blocks = 50;
  snapshot.instances[1].identity.shape.block_tokens = 32;
  snapshot.instances[1].load.total_blocks = 70;
  v1::ListModelsResponse out;
  FillModels(snapshot, &out);
  ASSERT_EQ(out.models_size(), 1);
  EXPECT_EQ(out.models(0).kv_block_tokens(), 16u);
  EXPECT_EQ(out.models(0).kv_blocks(), 50u);
}

// In the words of docs/metrics.md; a request that shares a prompt opens no transfer.
TEST(StatusTest, EachRequestCountsInItsOwnState) {
  scheduler::OrchestratorSnapshot snapshot;
  snapshot.planning = 1;
  snapshot.assigning = 2;
  snapshot.parked = 4;
  snapshot.assigned = 8;
  snapshot.waiting = 16;
  snapshot.reserving = 32;
  snapshot.sharing = 64;
  snapshot.placed = 128;
  v1::StatusResponse out;
  FillStatus(snapshot, absl::OkStatus(), 0, &out);
  EXPECT_EQ(out.assigning(), 1u + 2u);
  EXPECT_EQ(out.parked(), 4u);
  EXPECT_EQ(out.assigned(), 8u);
  EXPECT_EQ(out.waiting_for_decode(), 16u);
  EXPECT_EQ(out.reserving(), 32u);
  EXPECT_EQ(out.sharing(), 64u);
  EXPECT_EQ(out.placed(), 128u);
}

}  // namespace
}  // namespace skein::services
