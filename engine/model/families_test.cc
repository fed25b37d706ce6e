// Tiny random checkpoints of every architecture and option, on every Ops, against an independent
// slow forward pass; and the same text whole, in slices and in a batch.
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/model/testing/slow_forward.h"
#include "engine/ops/cpu/cpu_ops.h"
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
  const char* patch;  // merged into Base(); null removes nothing, it is written as null
  DType dtype = DType::kF32;
  int shards = 1;
};

json Base() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 32},
          {"intermediate_size", 56},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 97},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"}};
}

const Family kFamilies[] = {
    {"Llama", "{}"},
    {"LlamaTied", R"({"tie_word_embeddings": true})"},
    {"LlamaBiased", R"({"attention_bias": true, "mlp_bias": true})"},
    {"LlamaBF16", "{}", DType::kBF16},
    {"LlamaF16Sharded", "{}", DType::kF16, 3},
    {"Llama3Rope", R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8,
        "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 32}})"},
    {"LinearRope", R"({"rope_scaling": {"type": "linear", "factor": 4}})"},
    {"LinearRopeF16", R"({"rope_scaling": {"type": "linear", "factor": 4}})", DType::kF16},
    {"Multiquery", R"({"num_key_value_heads": 1})"},
    {"FullHeads", R"({"num_key_value_heads": 4})"},
    {"Mistral", R"({"architectures": ["MistralForCausalLM"], "sliding_window": null,
        "head_dim": 10, "num_key_value_heads": 1})"},
    {"MistralBF16Sharded", R"({"architectures": ["MistralForCausalLM"], "sliding_window": null,
        "head_dim": 10})",
     DType::kBF16, 2},
    {"Qwen2", R"({"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": true})"},
    {"Qwen2BF16", R"({"architectures": ["Qwen2ForCausalLM"]})", DType::kBF16},
    {"Qwen2Yarn", R"({"architectures": ["Qwen2ForCausalLM"], "rope_scaling": {"type": "yarn",
        "factor": 4, "original_max_position_embeddings": 64}})"},
    {"YarnMscale", R"({"rope_scaling": {"rope_type": "yarn", "factor": 8, "beta_fast": 16,
        "beta_slow": 2, "mscale": 1.2, "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 32}})"},
    {"YarnAttentionFactor", R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 5000.0,
        "factor": 2, "attention_factor": 1.3, "original_max_position_embeddings": 128}})"},
    {"Qwen3", R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 20})"},
    {"Qwen3Biased", R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 6,
        "attention_bias": true})"},
    {"Qwen3BF16", R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 16})", DType::kBF16},
};

std::vector<int32_t> Text(size_t count, uint64_t seed) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(UniformSample(seed, i) * 97);
  return ids;
}

struct Case {
  Family family;
  bool cpu_ops;
};

class FamiliesTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/families_" + GetParam().family.name;
    if (GetParam().cpu_ops) dir_ += "_cpu";
    json config = Base();
    config.update(json::parse(GetParam().family.patch));
    const absl::Status written = tools::WriteRandomCheckpoint(
        dir_, config,
        {.dtype = GetParam().family.dtype, .seed = 5, .shards = GetParam().family.shards});
    ASSERT_TRUE(written.ok()) << written;
    std::unique_ptr<Ops> ops = std::make_unique<ReferenceOps>();
    if (GetParam().cpu_ops) ops = *MakeCpuOps({.threads = 2, .isa = CpuIsa::kAuto});
    ModelEngineOptions options;
    options.num_blocks = 64;
    options.block_tokens = 8;
    auto engine = MakeModelEngine(dir_, std::move(ops), MakeCpuDevice(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  bool bf16() const { return GetParam().family.dtype == DType::kBF16; }

  std::string dir_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(FamiliesTest, AgreesWithTheSlowForward) {
  const std::vector<int32_t> ids = Text(60, 1);
  const std::vector<std::vector<double>> slow = SlowForward(dir_, ids);
  // f16 models keep their KV in f16; bf16 models round every product's input as well.
  const double tolerance = bf16() ? 0.06 : GetParam().family.dtype == DType::kF16 ? 3e-3 : 1e-4;
  const std::vector<float> logits = LogitsAfter(*engine_, ids);
  ASSERT_EQ(logits.size(), 97u);
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(logits[i], slow.back()[i], tolerance) << i;
  }
  const double slow_nll = SlowNll(slow, ids);
  EXPECT_NEAR(MeanNll(*engine_, ids, 0), slow_nll, (bf16() ? 2e-3 : 1e-4) * slow_nll);
}

TEST_P(FamiliesTest, SameLikelihoodWholeSlicedAndBatched) {
  const std::vector<int32_t> ids = Text(100, 2);
  const double tolerance = bf16() ? 1e-3 : GetParam().family.dtype == DType::kF16 ? 1e-4 : 1e-5;
  const double whole = MeanNll(*engine_, ids, 0);
  for (const int slice_tokens : {1, 7, 8, 64}) {
    EXPECT_NEAR(MeanNll(*engine_, ids, slice_tokens), whole, tolerance * whole) << slice_tokens;
  }
  NllRun first{.ids = ids}, second{.ids = ids, .slice_tokens = 9}, third{.ids = Text(50, 3)};
  NllRun fourth{.ids = ids, .slice_tokens = 13, .first_step = 3};
  ScoreTogether(*engine_, {&first, &third, &second, &fourth});
  for (const NllRun* run : {&first, &second, &fourth}) {
    EXPECT_NEAR(run->nll, whole, tolerance * whole);
  }
  EXPECT_NEAR(third.nll, MeanNll(*engine_, third.ids, 0), tolerance * third.nll);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Family& family : kFamilies) {
    cases.push_back({family, false});
    cases.push_back({family, true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, ::testing::ValuesIn(AllCases()), [](const auto& info) {
  return std::string(info.param.family.name) + (info.param.cpu_ops ? "OnCpu" : "OnReference");
});

}  // namespace
}  // namespace skein::engine
