#include "engine/checkpoint/model_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Llama-3.1-8B's own file, less what is not read.
json Llama31() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 128256})");
}

json Mistral() {
  json config = Llama31();
  config["architectures"] = {"MistralForCausalLM"};
  config["eos_token_id"] = 2;
  config["max_position_embeddings"] = 32768;
  config["sliding_window"] = nullptr;
  config.erase("rope_scaling");
  return config;
}

json Qwen(const char* architecture) {
  json config = Mistral();
  config["architectures"] = {architecture};
  config["sliding_window"] = 4096;
  config["use_sliding_window"] = false;
  config["max_window_layers"] = 28;
  config.erase("attention_bias");
  return config;
}

std::string Message(const json& config, int positions_limit = 0) {
  const auto parsed = ParseModelConfig(config.dump(), positions_limit);
  return parsed.ok() ? "accepted" : std::string(parsed.status().message());
}

TEST(ModelConfigTest, Llama31) {
  const auto model = ParseModelConfig(Llama31().dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->architecture, Architecture::kLlama);
  EXPECT_EQ(model->head_dim, 128);
  EXPECT_EQ(model->num_kv_heads, 8);
  EXPECT_EQ(model->max_positions, 131072);
  EXPECT_EQ(model->eos_ids, (std::vector<int32_t>{128001, 128008, 128009}));
  EXPECT_EQ(model->rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(model->rope.theta, 500000.0);
  EXPECT_EQ(model->rope.original_max_positions, 8192);
  EXPECT_FALSE(model->qkv_bias || model->output_bias || model->mlp_bias || model->qk_norm);
}

TEST(ModelConfigTest, DefaultsOfAbsentFields) {
  json config = Llama31();
  for (const char* field : {"num_key_value_heads", "rms_norm_eps", "rope_scaling", "rope_theta",
                            "tie_word_embeddings", "torch_dtype", "eos_token_id", "hidden_act"}) {
    config.erase(field);
  }
  const auto model = ParseModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->num_kv_heads, 32);
  EXPECT_FLOAT_EQ(model->rms_norm_eps, 1e-6f);
  EXPECT_EQ(model->rope.theta, 10000.0);
  EXPECT_EQ(model->rope.kind, RopeKind::kDefault);
  EXPECT_TRUE(model->eos_ids.empty());
}

TEST(ModelConfigTest, BiasesAndNormsOfEachArchitecture) {
  json llama = Llama31();
  llama["attention_bias"] = llama["mlp_bias"] = true;
  auto model = ParseModelConfig(llama.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->qkv_bias && model->output_bias && model->mlp_bias);

  model = ParseModelConfig(Qwen("Qwen2ForCausalLM").dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->qkv_bias);
  EXPECT_FALSE(model->output_bias || model->qk_norm);

  model = ParseModelConfig(Qwen("Qwen3ForCausalLM").dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->qk_norm);
  EXPECT_FALSE(model->qkv_bias || model->output_bias);
  EXPECT_EQ(model->head_dim, 128);  // its default, whatever hidden_size / heads is
}

TEST(ModelConfigTest, SlidingWindows) {
  EXPECT_EQ(Message(Mistral()), "accepted");
  json windowed = Mistral();
  windowed["sliding_window"] = 4096;  // Mistral-7B-v0.1
  EXPECT_THAT(Message(windowed), HasSubstr("sliding_window = 4096"));
  EXPECT_EQ(Message(windowed, 4096), "accepted");  // never reached: full attention
  windowed["sliding_window"] = 32768;
  EXPECT_EQ(Message(windowed), "accepted");
  windowed.erase("sliding_window");
  EXPECT_THAT(Message(windowed), HasSubstr("sliding_window = absent: meaning 4096"));
  json qwen = Qwen("Qwen2ForCausalLM");
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(Message(qwen), HasSubstr("use_sliding_window = true"));
  qwen["use_sliding_window"] = false;
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_THAT(Message(qwen), HasSubstr("layer_types = "));
}

TEST(ModelConfigTest, RopeSpellings) {
  json config = Mistral();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  auto model = ParseModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->rope.kind, RopeKind::kLinear);
  EXPECT_EQ(model->rope.factor, 4.0);

  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  model = ParseModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->rope.kind, RopeKind::kDefault);
  EXPECT_EQ(model->rope.theta, 1e6);
}

TEST(ModelConfigTest, YarnExtendsThePositions) {
  json config = Qwen("Qwen2ForCausalLM");
  config["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  auto model = ParseModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->rope.kind, RopeKind::kYarn);
  EXPECT_EQ(model->max_positions, 131072);
  EXPECT_EQ(model->rope.beta_fast, 32.0);
  EXPECT_FALSE(model->rope.attention_factor.has_value());

  config["max_position_embeddings"] = 65536;  // the factor is then their ratio
  config["rope_scaling"].erase("factor");
  config["rope_scaling"]["beta_fast"] = 16;
  config["rope_scaling"]["attention_factor"] = 1.25;
  model = ParseModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->rope.factor, 2.0);
  EXPECT_EQ(model->rope.beta_fast, 16.0);
  EXPECT_EQ(model->rope.attention_factor, 1.25);
}

struct Refusal {
  const char* patch;  // merged into Llama-3.1's file
  const char* named;
};

class RefusedConfigTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfigTest, NamesFieldAndValue) {
  json config = Llama31();
  config.update(json::parse(GetParam().patch));
  EXPECT_THAT(Message(config), HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedConfigTest,
    ::testing::Values(
        Refusal{R"({"architectures": ["GPT2LMHeadModel"]})",
                "architectures = [\"GPT2LMHeadModel\"]"},
        Refusal{R"({"architectures": null})", "architectures = absent"},
        Refusal{R"({"architectures": [1]})", "architectures = [1]"},
        Refusal{R"({"hidden_act": "gelu"})", "hidden_act = \"gelu\""},
        Refusal{R"({"quantization_config": {"bits": 4}})", "quantization_config = {\"bits\":4}"},
        Refusal{R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor = 0.5"},
        Refusal{R"({"num_experts": 8})", "num_experts = 8"},
        Refusal{R"({"torch_dtype": "float64"})", "torch_dtype = \"float64\""},
        Refusal{R"({"hidden_size": null})", "hidden_size = absent: required"},
        Refusal{R"({"hidden_size": 0})", "hidden_size = 0"},
        Refusal{R"({"hidden_size": "4096"})", "hidden_size = \"4096\""},
        Refusal{R"({"hidden_size": 4095})", "hidden_size = 4095: not a multiple"},
        Refusal{R"({"hidden_size": 1e30})", "hidden_size = 1e+30"},
        Refusal{R"({"intermediate_size": -1})", "intermediate_size = -1"},
        Refusal{R"({"num_hidden_layers": 100000})", "num_hidden_layers = 100000"},
        Refusal{R"({"num_attention_heads": 0})", "num_attention_heads = 0"},
        Refusal{R"({"num_key_value_heads": 5})", "num_key_value_heads = 5"},
        Refusal{R"({"num_key_value_heads": 64})", "num_key_value_heads = 64"},
        Refusal{R"({"head_dim": 127})", "head_dim = 127"},
        Refusal{R"({"vocab_size": 18446744073709551615})", "vocab_size = 18446744073709551615"},
        Refusal{R"({"max_position_embeddings": 0})", "max_position_embeddings = 0"},
        Refusal{R"({"rms_norm_eps": -1})", "rms_norm_eps = -1"},
        Refusal{R"({"rope_theta": 0})", "rope_theta = 0"},
        Refusal{R"({"eos_token_id": 128256})", "eos_token_id = 128256"},
        Refusal{R"({"eos_token_id": [-1]})", "eos_token_id = [-1]"},
        Refusal{R"({"tie_word_embeddings": 1})", "tie_word_embeddings = 1"},
        Refusal{R"({"rope_scaling": 3})", "rope_scaling.: not a JSON object"},
        Refusal{R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
                "rope_scaling.type = \"dynamic\""},
        Refusal{R"({"rope_scaling": {"rope_type": "longrope"}})",
                "rope_scaling.rope_type = \"longrope\""},
        Refusal{R"({"rope_scaling": {"rope_type": "linear"}})", "rope_scaling.factor = absent"},
        Refusal{R"({"rope_scaling": {"rope_type": "linear", "factor": 0}})",
                "rope_scaling.factor = 0"},
        Refusal{R"({"rope_scaling": {"rope_type": "yarn"}})", "rope_scaling.factor = absent"},
        Refusal{R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
                "rope_scaling.low_freq_factor = absent"},
        Refusal{R"({"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.25}})",
                "rope_scaling.partial_rotary_factor = 0.25"}));

TEST(ModelConfigTest, BrokenJson) {
  EXPECT_THAT(std::string(ParseModelConfig("{").status().message()), HasSubstr("config.json"));
  EXPECT_FALSE(ParseModelConfig("[]").ok());
  EXPECT_FALSE(ParseModelConfig("{\"hidden_size\":1,\"hidden_size\":2}").ok());
  EXPECT_FALSE(ParseModelConfig("{\"a\":\"\xff\"}").ok());
}

}  // namespace
}  // namespace skein::engine
