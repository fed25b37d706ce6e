#include "engine/model/testing/slow_forward.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "engine/ops/element.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

using nlohmann::json;
using Row = std::vector<double>;

constexpr double kPi = 3.14159265358979323846;

// Tensors by name, widened.
class Tensors {
 public:
  explicit Tensors(const std::string& dir) : store_(*TensorStore::Open(dir)) {}

  bool Has(const std::string& name) const { return store_.Has(name); }
  const Row& Values(const std::string& name) const {
    const auto [it, added] = cache_.try_emplace(name);
    if (added) it->second = Read(name);
    return it->second;
  }

  // y = W x (+ b where the file has one).
  Row Apply(const std::string& name, const Row& x) const {
    const Row& weight = Values(name + ".weight");
    Row y = Has(name + ".bias") ? Values(name + ".bias") : Row(weight.size() / x.size(), 0.0);
    SKEIN_CHECK(y.size() * x.size() == weight.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) y[r] += weight[r * x.size() + c] * x[c];
    }
    return y;
  }

 private:
  Row Read(const std::string& name) const {
    SKEIN_CHECK_MSG(Has(name), name.c_str());
    const FileTensor& tensor = store_.tensors().find(name)->second;
    const DType dtype = tensor.dtype == "F32"    ? DType::kF32
                        : tensor.dtype == "BF16" ? DType::kBF16
                                                 : DType::kF16;
    Row values(tensor.bytes / BytesOf(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = LoadElement(tensor.data, dtype, static_cast<int64_t>(i));
    }
    return values;
  }

  TensorStore store_;
  mutable std::map<std::string, Row> cache_;
};

Row Norm(const Row& x, const Row& weight, double eps) {
  double squares = 0.0;
  for (const double v : x) squares += v * v;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

json Scaling(const json& config) {
  for (const char* holder : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(holder) && !config[holder].is_null()) return config[holder];
  }
  return json::object();
}

std::string KindOf(const json& scaling) {
  return scaling.value("rope_type", scaling.value("type", std::string("default")));
}

double ThetaOf(const json& config) {
  return Scaling(config).value("rope_theta", config.value("rope_theta", 10000.0));
}

double Llama3Frequency(double frequency, const json& scaling) {
  const double factor = scaling["factor"], low = scaling["low_freq_factor"];
  const double high = scaling["high_freq_factor"];
  const double context = scaling["original_max_position_embeddings"];
  const double wave = 2 * kPi / frequency;
  if (wave < context / high) return frequency;
  if (wave > context / low) return frequency / factor;
  const double smooth = (context / wave - low) / (high - low);
  return (1 - smooth) * (frequency / factor) + smooth * frequency;
}

double YarnFrequency(double frequency, const json& config, int head_dim, int pair) {
  const json scaling = Scaling(config);
  const double factor = scaling["factor"];
  const double context = scaling.value("original_max_position_embeddings",
                                       config["max_position_embeddings"].get<double>());
  const auto dimension = [&](double rotations) {
    return head_dim * std::log(context / (rotations * 2 * kPi)) / (2 * std::log(ThetaOf(config)));
  };
  const double low = std::max(std::floor(dimension(scaling.value("beta_fast", 32.0))), 0.0);
  double high = std::min(std::ceil(dimension(scaling.value("beta_slow", 1.0))), head_dim - 1.0);
  if (low == high) high += 0.001;
  const double extrapolated = 1 - std::min(std::max((pair - low) / (high - low), 0.0), 1.0);
  return (frequency / factor) * (1 - extrapolated) + frequency * extrapolated;
}

// One sequence's whole state.
struct Slow {
  json config;
  Tensors tensors;
  int heads, kv_heads, head_dim;
  double eps;
  Row frequencies;
  double attention_factor;

  explicit Slow(const std::string& dir) : tensors(dir) {
    std::ifstream(dir + "/config.json") >> config;
    heads = config["num_attention_heads"];
    kv_heads = config.value("num_key_value_heads", heads);
    const bool qwen3 = config["architectures"][0] == "Qwen3ForCausalLM";
    head_dim = config.value("head_dim", qwen3 ? 128 : config["hidden_size"].get<int>() / heads);
    eps = config.value("rms_norm_eps", 1e-6);
    attention_factor = SlowAttentionFactor(config);
    for (int i = 0; i < head_dim / 2; ++i) {
      frequencies.push_back(SlowInverseFrequency(config, head_dim, i));
    }
  }

  // Normalises (Qwen3) and rotates the heads of one token.
  void Turn(const std::string& norm, int position, Row& x) const {
    const int half = head_dim / 2;
    for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(head_dim)) {
      if (tensors.Has(norm + ".weight")) {
        const auto at = x.begin() + static_cast<std::ptrdiff_t>(begin);
        const Row turned = Norm(Row(at, at + head_dim), tensors.Values(norm + ".weight"), eps);
        std::copy(turned.begin(), turned.end(), at);
      }
      for (int i = 0; i < half; ++i) {
        const double angle = position * frequencies[static_cast<size_t>(i)];
        const double c = std::cos(angle) * attention_factor;
        const double s = std::sin(angle) * attention_factor;
        double& a = x[begin + static_cast<size_t>(i)];
        double& b = x[begin + static_cast<size_t>(i + half)];
        const double a0 = a, b0 = b;
        a = a0 * c - b0 * s;
        b = b0 * c + a0 * s;
      }
    }
  }

  // Attention of the last of `keys` over all of them.
  Row Attend(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values) const {
    Row out(query.size(), 0.0);
    for (int head = 0; head < heads; ++head) {
      const int q0 = head * head_dim, k0 = head / (heads / kv_heads) * head_dim;
      Row scores;
      for (const Row& key : keys) {
        double dot = 0.0;
        for (int d = 0; d < head_dim; ++d) dot += query[q0 + d] * key[k0 + d];
        scores.push_back(dot / std::sqrt(static_cast<double>(head_dim)));
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double sum = 0.0;
      for (double& score : scores) sum += score = std::exp(score - max);
      for (size_t t = 0; t < scores.size(); ++t) {
        for (int d = 0; d < head_dim; ++d) out[q0 + d] += scores[t] / sum * values[t][k0 + d];
      }
    }
    return out;
  }

  void Layer(int layer, std::vector<Row>& x) const {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string attention = prefix + "self_attn.";
    std::vector<Row> keys, values;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row in = Norm(x[t], tensors.Values(prefix + "input_layernorm.weight"), eps);
      Row query = tensors.Apply(attention + "q_proj", in);
      keys.push_back(tensors.Apply(attention + "k_proj", in));
      values.push_back(tensors.Apply(attention + "v_proj", in));
      Turn(attention + "q_norm", static_cast<int>(t), query);
      Turn(attention + "k_norm", static_cast<int>(t), keys.back());
      Add(tensors.Apply(attention + "o_proj", Attend(query, keys, values)), x[t]);
      const Row mid = Norm(x[t], tensors.Values(prefix + "post_attention_layernorm.weight"), eps);
      Row gate = tensors.Apply(prefix + "mlp.gate_proj", mid);
      const Row up = tensors.Apply(prefix + "mlp.up_proj", mid);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      Add(tensors.Apply(prefix + "mlp.down_proj", gate), x[t]);
    }
  }

  static void Add(const Row& y, Row& x) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
};

}  // namespace

double SlowInverseFrequency(const json& config, int head_dim, int pair) {
  const double frequency = 1.0 / std::pow(ThetaOf(config), 2.0 * pair / head_dim);
  const json scaling = Scaling(config);
  const std::string kind = KindOf(scaling);
  if (kind == "linear") return frequency / scaling["factor"].get<double>();
  if (kind == "llama3") return Llama3Frequency(frequency, scaling);
  if (kind == "yarn") return YarnFrequency(frequency, config, head_dim, pair);
  return frequency;
}

double SlowAttentionFactor(const json& config) {
  const json scaling = Scaling(config);
  if (KindOf(scaling) != "yarn") return 1.0;
  if (scaling.contains("attention_factor")) return scaling["attention_factor"];
  const double factor = scaling["factor"];
  const auto mscale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
  if (scaling.contains("mscale") && scaling.contains("mscale_all_dim")) {
    return mscale(scaling["mscale"]) / mscale(scaling["mscale_all_dim"]);
  }
  return mscale(1.0);
}

std::vector<std::vector<double>> SlowForward(const std::string& model_dir,
                                             const std::vector<int32_t>& ids) {
  const Slow slow(model_dir);
  const Row embedding = slow.tensors.Values("model.embed_tokens.weight");
  const size_t hidden = slow.config["hidden_size"];
  std::vector<Row> x;
  for (const int32_t id : ids) {
    const auto row = embedding.begin() + static_cast<std::ptrdiff_t>(id * hidden);
    x.emplace_back(row, row + static_cast<std::ptrdiff_t>(hidden));
  }
  for (int layer = 0; layer < slow.config["num_hidden_layers"].get<int>(); ++layer) {
    slow.Layer(layer, x);
  }
  const bool tied = slow.config.value("tie_word_embeddings", false);
  for (Row& row : x) {
    row = slow.tensors.Apply(tied ? "model.embed_tokens" : "lm_head",
                             Norm(row, slow.tensors.Values("model.norm.weight"), slow.eps));
  }
  return x;
}

double SlowNll(const std::vector<std::vector<double>>& logits, const std::vector<int32_t>& ids) {
  double sum = 0.0;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    double total = 0.0;
    for (const double logit : logits[t]) total += std::exp(logit);
    sum += std::log(total) - logits[t][static_cast<size_t>(ids[t + 1])];
  }
  return sum / static_cast<double>(ids.size() - 1);
}

}  // namespace skein::engine
