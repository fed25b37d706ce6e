#include "services/orchestrator/status_answers.h"

#include <gtest/gtest.h>

namespace skein::services {
namespace {

TEST(ListModelsTest, TellsWhatIsThereAlsoWhereARoleIsMissing) {
  scheduler::OrchestratorSnapshot totals;
  totals.models["gone"] = {.waiting_here = 1};
  totals.models["half"] = {.prefill = {.instances = 1}};
  totals.models["whole"] = {.hash = "h",
                            .max_positions = 80,
                            .prefill = {.instances = 1, .running_requests = 3},
                            .decode = {.instances = 2, .running_requests = 4}};
  v1::ListModelsResponse out;
  FillModels(totals, &out);
  ASSERT_EQ(out.models_size(), 2);
  EXPECT_EQ(out.models(0).model(), "half");
  EXPECT_EQ(out.models(0).prefill_instances(), 1u);
  EXPECT_EQ(out.models(0).decode_instances(), 0u);
  EXPECT_EQ(out.models(1).model_hash(), "h");
  EXPECT_EQ(out.models(1).prefill_instances(), 1u);
  EXPECT_EQ(out.models(1).decode_instances(), 2u);
  EXPECT_EQ(out.models(1).max_positions(), 80u);
  EXPECT_EQ(out.models(1).running(), 7u);
}

// Otherwise nobody would see that a cluster is full: what waits there has no instance yet.
TEST(ListModelsTest, WhatWaitsAtTheOrchestratorCountsAsWaiting) {
  scheduler::OrchestratorSnapshot totals;
  totals.models["m"] = {.prefill = {.instances = 1, .queued_requests = 3},
                        .decode = {.instances = 1, .queued_requests = 2},  // in prefill meanwhile
                        .waiting_here = 4};
  v1::ListModelsResponse out;
  FillModels(totals, &out);
  ASSERT_EQ(out.models_size(), 1);
  EXPECT_EQ(out.models(0).waiting(), 7u);
}

TEST(ListModelsTest, BlocksAreThoseOfTheDecodeInstances) {
  scheduler::OrchestratorSnapshot totals;
  totals.models["m"] = {.block_tokens = 16,
                        .prefill = {.instances = 1, .total_blocks = 70, .held_blocks = 7},
                        .decode = {.instances = 1, .total_blocks = 50, .held_blocks = 5}};
  v1::ListModelsResponse out;
  FillModels(totals, &out);
  ASSERT_EQ(out.models_size(), 1);
  EXPECT_EQ(out.models(0).kv_block_tokens(), 16u);
  EXPECT_EQ(out.models(0).kv_blocks(), 50u);
  EXPECT_EQ(out.models(0).kv_blocks_held(), 5u);
}

TEST(StatusTest, TellsOfEachModelHowManyInstancesServe) {
  scheduler::OrchestratorSnapshot snapshot;
  snapshot.models["gone"] = {};
  snapshot.models["m"] = {
      .prefill = {.instances = 5}, .prefill_placeable = 4, .decode_placeable = 3};
  v1::StatusResponse out;
  FillStatus(snapshot, absl::OkStatus(), 0, &out);
  ASSERT_EQ(out.models_size(), 2) << "also of one that has none any more";
  EXPECT_EQ(out.models(0).model(), "gone");
  EXPECT_EQ(out.models(1).prefill_serving(), 4u);
  EXPECT_EQ(out.models(1).decode_serving(), 3u);
}

TEST(StatusTest, TellsWhoWasRefusedAndWhy) {
  scheduler::OrchestratorSnapshot snapshot;
  snapshot.refused_peers = {{.what = "router",
                             .model = "",
                             .endpoint = "r:80",
                             .version = "0.9.0",
                             .why = "protocol",
                             .first_us = 10,
                             .last_us = 20,
                             .times = 3}};
  v1::StatusResponse out;
  FillStatus(snapshot, absl::OkStatus(), 50, &out);
  ASSERT_EQ(out.refused_peers_size(), 1);
  EXPECT_EQ(out.refused_peers(0).what(), "router");
  EXPECT_EQ(out.refused_peers(0).endpoint(), "r:80");
  EXPECT_EQ(out.refused_peers(0).version(), "0.9.0");
  EXPECT_EQ(out.refused_peers(0).why(), "protocol");
  EXPECT_EQ(out.refused_peers(0).since_us(), 40u);
  EXPECT_EQ(out.refused_peers(0).times(), 3u);
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
