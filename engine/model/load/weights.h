// A model's weights: views of the checkpoint's mapped tensors, named by their role. All are
// row-major [out, in] as Hugging Face stores them, in their file's dtype; vectors are [1, size].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/tensor_store.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// A linear map; bias is empty where the model has none.
struct Linear {
  ConstMatrix weight;
  ConstVector bias;
  ColumnSlice slice;  // of a matrix whose columns a group's ranks share (o, down)
};

// H hidden, F intermediate. A layer's feed-forward weights may be elsewhere than its others
// (WeightSource).
struct FeedForwardWeights {
  Linear gate;  // [F, H]
  Linear up;    // [F, H]
  Linear down;  // [H, F]
};

// H hidden, Q = heads * head_dim, K = kv_heads * head_dim.
struct LayerWeights {
  ConstVector attention_norm;  // [H]
  Linear query;                // [Q, H]
  Linear key;                  // [K, H]
  Linear value;                // [K, H]
  ConstVector query_norm;      // [head_dim], Qwen3; else empty
  ConstVector key_norm;        // [head_dim], Qwen3; else empty
  Linear attention_out;        // [H, Q]
  ConstVector ffn_norm;        // [H]
  FeedForwardWeights feed_forward;
};

struct ModelWeights {
  ConstMatrix embedding;  // [vocab, H]
  std::vector<LayerWeights> layers;
  ConstVector final_norm;  // [H]
  ConstMatrix lm_head;     // [vocab, H]; the embedding when tied

  // What activations are rounded to before a product of a layer: bf16 when every matrix of the
  // layers is bf16, else f32 (f16 would overflow on the outliers that real models have). Before
  // lm_head: the same, if that is bf16, too.
  DType activation = DType::kF32;
  DType head_activation = DType::kF32;
  // Names the first tensor because of which an activation is f32 though there are 16-bit matrices:
  // such products are slower than those of a bf16 checkpoint. Else empty.
  std::string slower_because;
  DType common = DType::kF32;  // dtype of the first layer's query matrix
  int64_t num_parameters = 0;  // elements of the tensors in use, tied ones once
};

// NOT_FOUND or INVALID_ARGUMENT names the tensor that is missing, has another shape (both shown) or
// an unsupported dtype, or that this architecture does not know.
absl::StatusOr<ModelWeights> BindWeights(const ModelConfig& config, const TensorStore& tensors);

}  // namespace skein::engine
