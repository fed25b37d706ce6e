// Whole models on CUDA against the reference: tiny random checkpoints of the families and dtypes;
// the same logits, likelihood and greedy tokens, and loading with progress.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/testing/twin_backend.h"
#include "engine/cuda/testing/twin_device.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/lone_failures.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/sampling/philox.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

using nlohmann::json;

struct Family {
  const char* name;
  const char* patch;
  DType dtype;
};

const Family kFamilies[] = {
    {"LlamaBiasedF32", R"({"attention_bias": true, "mlp_bias": true})", DType::kF32},
    {"MistralF32", R"({"architectures": ["MistralForCausalLM"], "sliding_window": null})",
     DType::kF32},
    {"LlamaTiedBF16", R"({"tie_word_embeddings": true})", DType::kBF16},
    {"Qwen2BF16", R"({"architectures": ["Qwen2ForCausalLM"]})", DType::kBF16},
    {"Qwen3F16", R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 16})", DType::kF16},
};

class CudaModel : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    json config = {{"architectures", {"LlamaForCausalLM"}},
                   {"hidden_size", 32},
                   {"intermediate_size", 56},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"vocab_size", 97},
                   {"max_position_embeddings", 128},
                   {"rms_norm_eps", 1e-5},
                   {"hidden_act", "silu"}};
    config.update(json::parse(GetParam().patch));
    dir_ = testing::TempDir() + "/cuda_model_" + GetParam().name;
    ASSERT_TRUE(
        tools::WriteRandomCheckpoint(dir_, config, {.dtype = GetParam().dtype, .seed = 9}).ok());
    options_.num_blocks = 32;
    options_.block_tokens = 8;
    options_.progress = [this](int64_t done, int64_t total) {
      EXPECT_LE(done_, done);
      EXPECT_LE(done, total);
      done_ = done;
      total_ = total;
    };
    TestingBackend backend = MakeTestingBackend();
    ModelEngineOptions with_sampler = options_;
    with_sampler.make_token_sampler = backend.make_token_sampler;
    auto engine =
        MakeModelEngine(dir_, std::move(backend.ops), std::move(backend.device), with_sampler);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto reference =
        MakeModelEngine(dir_, std::make_unique<ReferenceOps>(), MakeCpuDevice(), options_);
    ASSERT_TRUE(reference.ok()) << reference.status();
    reference_ = *std::move(reference);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  double tolerance() const {
    return GetParam().dtype == DType::kBF16 ? 0.06 : GetParam().dtype == DType::kF16 ? 3e-3 : 1e-4;
  }

  static std::vector<int32_t> Text(size_t count, uint64_t seed) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(UniformSample(seed, i) * 97);
    return ids;
  }

  std::string dir_;
  ModelEngineOptions options_;
  int64_t done_ = 0, total_ = 0;
  std::unique_ptr<Engine> engine_, reference_;
};

TEST_P(CudaModel, LoadsWithProgress) {
  EXPECT_GT(total_, 0);
  EXPECT_EQ(done_, total_);
}

TEST_P(CudaModel, SameLogits) {
  const std::vector<int32_t> ids = Text(20, 1);
  const std::vector<float> actual = LogitsAfter(*engine_, ids);
  const std::vector<float> expected = LogitsAfter(*reference_, ids);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance()) << i;
}

TEST_P(CudaModel, SameLikelihoodInSlices) {
  const std::vector<int32_t> ids = Text(30, 2);
  const double expected = MeanNll(*reference_, ids, 0);
  const double relative = GetParam().dtype == DType::kF32 ? 1e-5 : 1e-3;
  for (const int slice_tokens : {0, 9}) {
    EXPECT_NEAR(MeanNll(*engine_, ids, slice_tokens), expected, relative * expected);
  }
}

// Host sampler, device sampler, and whole batches of either.
TEST_P(CudaModel, FailuresStayAlone) {
  const std::shared_ptr<Device> device = OpenTestingDevice();
  const auto spoil = [&](int32_t block) {
    const int64_t bytes = engine_->Spec().kv.BlockBytes();
    const std::string nan(static_cast<size_t>(bytes), '\xff');
    for (const KvRegion& region : engine_->KvRegions()) {
      auto* const at = static_cast<std::byte*>(region.base) + block * bytes;
      ASSERT_TRUE(device->Copy(at, nan.data(), nan.size(), CopyKind::kHostToDevice).ok());
    }
    ASSERT_TRUE(device->Synchronize().ok());
  };
  ExpectFailuresStayAlone(*engine_, {.spoil_block = spoil});
}

// In f32: elsewhere rounding may turn near ties.
class ExactCudaModel : public CudaModel {};

// Prefill and decode of several sequences together.
TEST_P(ExactCudaModel, SameGreedyTokens) {
  GreedyRun a{.prompt = Text(11, 3), .tokens_wanted = 5},
      b{.prompt = Text(3, 4), .tokens_wanted = 4};
  GreedyRun expected_a = a, expected_b = b;
  RunTogether(*engine_, {&a, &b});
  RunTogether(*reference_, {&expected_a, &expected_b});
  EXPECT_EQ(a.output, expected_a.output);
  EXPECT_EQ(b.output, expected_b.output);
}

INSTANTIATE_TEST_SUITE_P(All, CudaModel, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(F32, ExactCudaModel, testing::Values(kFamilies[0], kFamilies[1]),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace skein::engine
