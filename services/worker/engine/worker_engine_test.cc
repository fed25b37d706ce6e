#include "services/worker/engine/worker_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"
#include "services/log/log.h"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::services {
namespace {

std::string RefusalOf(const std::string& device, const std::string& comm_path) {
  WorkerOptions options;
  options.device = device;
  options.comm_path = comm_path;
  const absl::Status status = MakeWorkerEngine(options, scheduler::Role::kPrefill).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

// Before a model is looked at: none is given here.
TEST(MakeWorkerEngine, ABadCommPathIsNamed) {
  EXPECT_EQ(RefusalOf("cpu", "fast"), "--comm-path: 'fast' is not auto, ipc, nccl or host");
  EXPECT_EQ(RefusalOf("cpu", "nccl"), "--comm-path: 'nccl' needs a GPU, but --device is cpu");
  EXPECT_EQ(RefusalOf("emulated", "ipc"),
            "--comm-path: 'ipc' needs a GPU, but --device is emulated");
  EXPECT_EQ(RefusalOf("cpu", "host"), "--model is required");
}

// Of a CPU worker with a small checkpoint of two attention heads.
WorkerOptions OptionsOf(engine::DType dtype, double device_memory_gib) {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 24},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"vocab_size", 50},
                                 {"max_position_embeddings", 64}};
  WorkerOptions options;
  options.model = ::testing::TempDir() + "/worker_engine_" + std::string(engine::NameOf(dtype));
  options.kv_gib = 0.001;
  options.device_memory_gib = device_memory_gib;
  EXPECT_TRUE(tools::WriteRandomCheckpoint(options.model, config, {.dtype = dtype}).ok());
  return options;
}

// What such a worker logs while it is made.
std::string LogOfLoading(engine::DType dtype, double device_memory_gib) {
  const WorkerOptions options = OptionsOf(dtype, device_memory_gib);
  ::testing::internal::CaptureStderr();
  const auto made = MakeWorkerEngine(options, scheduler::Role::kPrefill);
  FlushLog();
  std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(made.ok()) << made.status();
  return log;
}

TEST(MakeWorkerEngine, ATensorThatMakesACpuSlowerIsNamed) {
  for (const double device_memory_gib : {0.0, 0.1}) {
    EXPECT_THAT(LogOfLoading(engine::DType::kF16, device_memory_gib),
                ::testing::HasSubstr("model.layers.0.self_attn.q_proj.weight"));
    EXPECT_THAT(LogOfLoading(engine::DType::kBF16, device_memory_gib),
                ::testing::Not(::testing::HasSubstr("q_proj")));
  }
}

TEST(MakeWorkerEngine, DecodeWorkersRunStepsOfGroups) {
  for (const scheduler::Role role : {scheduler::Role::kPrefill, scheduler::Role::kDecode}) {
    for (const double device_memory_gib : {0.0, 0.1}) {
      const auto made = MakeWorkerEngine(OptionsOf(engine::DType::kBF16, device_memory_gib), role);
      ASSERT_TRUE(made.ok()) << made.status();
      const bool runs = role == scheduler::Role::kDecode;
      EXPECT_EQ(made->group_ranks_max, runs ? 2 : 1) << "as many as the model has heads";
    }
  }
}

// Only instances with equally many blocks are bound together.
TEST(MakeWorkerEngine, EqualMemoryBudgetsAreEqualPools) {
  const WorkerOptions options = OptionsOf(engine::DType::kBF16, 0.1);
  const auto one = MakeWorkerEngine(options, scheduler::Role::kDecode);
  const auto other = MakeWorkerEngine(options, scheduler::Role::kDecode);
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  EXPECT_EQ(one->engine->Spec().kv.num_blocks, other->engine->Spec().kv.num_blocks);
}

}  // namespace
}  // namespace skein::services
