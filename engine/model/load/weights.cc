#include "engine/model/load/weights.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace skein::engine {
namespace {

// Takes tensors out of the store by name; remembers the first error and which names were taken.
class Binder {
 public:
  explicit Binder(const TensorStore& tensors) : tensors_(tensors) {}

  ConstVector Vector(const std::string& name, int64_t size) {
    return Take(name, tensors_.Vector(name, size));
  }
  ConstMatrix Matrix(const std::string& name, int64_t rows, int64_t cols) {
    return Take(name, tensors_.Matrix(name, rows, cols));
  }
  Linear Map(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    Linear linear;
    linear.weight = Matrix(name + ".weight", rows, cols);
    if (bias) linear.bias = Vector(name + ".bias", rows);
    return linear;
  }

  const absl::Status& status() const { return status_; }
  const std::set<std::string, std::less<>>& taken() const { return taken_; }

 private:
  ConstMatrix Take(const std::string& name, const absl::StatusOr<ConstMatrix>& view) {
    taken_.insert(name);
    if (view.ok()) return *view;
    if (status_.ok()) status_ = view.status();
    return {};
  }

  const TensorStore& tensors_;
  absl::Status status_;
  std::set<std::string, std::less<>> taken_;
};

LayerWeights BindLayer(const ModelConfig& config, int layer, Binder& binder) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  LayerWeights w;
  w.attention_norm = binder.Vector(prefix + "input_layernorm.weight", hidden);
  w.query = binder.Map(attention + "q_proj", config.QueryColumns(), hidden, config.qkv_bias);
  w.key = binder.Map(attention + "k_proj", config.KvColumns(), hidden, config.qkv_bias);
  w.value = binder.Map(attention + "v_proj", config.KvColumns(), hidden, config.qkv_bias);
  if (config.qk_norm) {
    w.query_norm = binder.Vector(attention + "q_norm.weight", config.head_dim);
    w.key_norm = binder.Vector(attention + "k_norm.weight", config.head_dim);
  }
  w.attention_out =
      binder.Map(attention + "o_proj", hidden, config.QueryColumns(), config.output_bias);
  w.ffn_norm = binder.Vector(prefix + "post_attention_layernorm.weight", hidden);
  FeedForwardWeights& ffn = w.feed_forward;
  ffn.gate = binder.Map(mlp + "gate_proj", inner, hidden, config.mlp_bias);
  ffn.up = binder.Map(mlp + "up_proj", inner, hidden, config.mlp_bias);
  ffn.down = binder.Map(mlp + "down_proj", hidden, inner, config.mlp_bias);
  for (Linear* shared : {&w.attention_out, &ffn.down}) {
    shared->slice.columns = shared->weight.cols;
  }
  return w;
}

// A tensor that nobody reads would mean another model than the one that is computed. Harmless: the
// angles that old files store, and the output matrix of a model that ties it.
absl::Status RefuseUnknown(const ModelConfig& config, const TensorStore& tensors,
                           const Binder& binder) {
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (binder.taken().contains(name) || name.ends_with(".rotary_emb.inv_freq")) continue;
    if (config.tied_embeddings && name == "lm_head.weight") continue;
    return absl::InvalidArgumentError("tensor \"" + name + "\": not part of a " +
                                      config.architecture_name + " with this config.json");
  }
  return absl::OkStatus();
}

// The matrices of the layers, then lm_head.
struct NamedMatrix {
  std::string name;
  DType dtype;
};
std::vector<NamedMatrix> MatricesOf(const ModelConfig& config, const ModelWeights& weights) {
  std::vector<NamedMatrix> all;
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    const LayerWeights& w = weights.layers[layer];
    const std::pair<const char*, const Linear*> linears[] = {
        {"self_attn.q_proj", &w.query},          {"self_attn.k_proj", &w.key},
        {"self_attn.v_proj", &w.value},          {"self_attn.o_proj", &w.attention_out},
        {"mlp.gate_proj", &w.feed_forward.gate}, {"mlp.up_proj", &w.feed_forward.up},
        {"mlp.down_proj", &w.feed_forward.down}};
    for (const auto& [name, linear] : linears) {
      all.push_back(
          {"model.layers." + std::to_string(layer) + "." + name + ".weight", linear->weight.dtype});
    }
  }
  all.push_back({config.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                 weights.lm_head.dtype});
  return all;
}

void ChooseActivations(const ModelConfig& config, ModelWeights* weights) {
  const std::vector<NamedMatrix> all = MatricesOf(config, *weights);
  const auto other =
      std::find_if(all.begin(), all.end(), [](const auto& m) { return m.dtype != DType::kBF16; });
  if (other == all.end() || other + 1 == all.end()) weights->activation = DType::kBF16;
  if (other == all.end()) weights->head_activation = DType::kBF16;
  const bool all_f32 =
      std::all_of(all.begin(), all.end(), [](const auto& m) { return m.dtype == DType::kF32; });
  if (other == all.end() || all_f32) return;
  weights->slower_because =
      "tensor \"" + other->name + "\" is " + std::string(NameOf(other->dtype)) +
      (other + 1 == all.end()
           ? ", not bf16 as the others: its products are in f32, which is slower"
           : ", not bf16: the products of all layers are in f32, which is slower");
}

int64_t CountParameters(const TensorStore& tensors, const Binder& binder) {
  int64_t count = 0;
  for (const std::string& name : binder.taken()) {
    int64_t elements = 1;
    for (const int64_t extent : tensors.tensors().at(name).shape) elements *= extent;
    count += elements;
  }
  return count;
}

}  // namespace

absl::StatusOr<ModelWeights> BindWeights(const ModelConfig& config, const TensorStore& tensors) {
  Binder binder(tensors);
  ModelWeights weights;
  weights.embedding =
      binder.Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (int layer = 0; layer < config.num_layers && binder.status().ok(); ++layer) {
    weights.layers.push_back(BindLayer(config, layer, binder));
  }
  weights.final_norm = binder.Vector("model.norm.weight", config.hidden_size);
  weights.lm_head = config.tied_embeddings
                        ? weights.embedding
                        : binder.Matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  if (!binder.status().ok()) return binder.status();
  const absl::Status unknown = RefuseUnknown(config, tensors, binder);
  if (!unknown.ok()) return unknown;
  ChooseActivations(config, &weights);
  weights.common = weights.layers.front().query.weight.dtype;
  weights.num_parameters = CountParameters(tensors, binder);
  return weights;
}

}  // namespace skein::engine
