// Ops: the numerical steps of a transformer layer over a ragged batch of tokens.
//
// Implementations: reference (slow, f32, the oracle), cpu (oneDNN + our kernels), cuda. One
// conformance suite (ops_conformance) runs on each against the reference.
//
// Conventions. A batch is T tokens of one or more sequences laid end to end. Activations are f32
// or, as input of a product with bf16 / f16 weights, the weight's dtype; accumulation is f32.
// Buffers are owned by the caller, must not overlap unless said so, and live on the
// implementation's device. Methods are called from one thread (the engine's); an implementation may
// use its own pool inside. Shapes are checked (SKEIN_CHECK): a wrong one is a programmer error.
//
// Batch invariance. What an operation writes for a row is the same bits whatever other rows are in
// the call, wherever the row stands among them, and on any number of threads, as long as
//   - MatMuls:         the call is for the same products and has at most SkinnyRowsMax rows. A
//                      larger one is only sure to repeat for the same rows and number of threads.
//   - PagedAttention:  the span has the same token_count, position and keys. Other spans never
//                      matter.
//   - the others:      always.
// An implementation whose KeySegment is not 0 promises it in any case (docs/reproducibility.md): a
// row of attention depends on its position and the keys that it sees, not on its span.
// This holds for one machine and build: another instruction set sums in another order.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/tensor.h"
#include "engine/kv/kv_spec.h"

namespace skein::engine {

class ThreadPool;

// Rows up to which every implementation's products are invariant.
inline constexpr int64_t kSkinnyRowsMax = 64;

// cos and sin of every rotary angle, after scaling (llama3, linear, yarn): row p, column i <
// head_dim / 2. yarn's attention factor is already multiplied in.
struct RopeTable {
  const float* cos = nullptr;  // [max_positions, head_dim / 2]
  const float* sin = nullptr;  // [max_positions, head_dim / 2]
  int64_t max_positions = 0;
  int head_dim = 0;
};

// Row t is rotated to positions[t] (StoreKv). No positions: nothing is rotated.
struct Rotation {
  std::span<const int32_t> positions;
  RopeTable table;
};

// Which columns of a larger matrix a product's w is: [begin, begin + w.cols) of `columns`, the rest
// being other ranks', whose results are added to this one's in pairs of neighbours. `columns` = 0:
// no rank has a part of this matrix's columns in any mode.
struct ColumnSlice {
  int64_t columns = 0;
  int64_t begin = 0;
};

// One of the products of a call's rows: out = x · wᵀ + bias.
struct Product {
  ConstMatrix w;      // [N, K]
  ConstVector bias;   // empty or [1, N] any dtype
  ColumnSlice slice;  // where w is a part of a matrix's columns
  Matrix out;         // f32 or w's dtype [M, N]
};

// One sequence's share of a ragged batch.
struct SequenceSpan {
  int64_t token_begin = 0;  // first row of this sequence in the batch
  int64_t token_count = 0;  // rows of this sequence (1 in decode, a slice in prefill)
  int64_t position = 0;     // position of the first row = tokens already in KV
  std::span<const int32_t>
      block_table;  // block ids, ceil((position + token_count) / tokens per block) or more
  KvLayout layout;
  // PagedAttention only: at least 0 means that every row sees exactly the keys 0 … keys - 1 of the
  // table, without a causal mask; `position` is then not used and the table covers `keys`.
  int64_t keys = -1;
};

// One layer's blocks of the paged pool.
struct KvLayerView {
  void* base = nullptr;  // spec.num_blocks * spec.BlockBytes() bytes
  const KvSpec* spec = nullptr;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // out[t, :] = table[ids[t], :].  table [vocab, hidden], out any dtype [T, hidden]. ids in [0,
  // vocab). Also gathers rows of activations, and converts them.
  virtual void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) = 0;

  // out[r, :] = x[r, :] / sqrt(mean(x[r, :]²) + eps) * weight.  x f32 [R, N], weight [1, N], out
  // any dtype [R, N]. In place (out.data == x.data) is allowed for f32. A weight [1, n] of which N
  // is a multiple normalises every n columns by themselves (QK-norm: n = head_dim).
  virtual void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) = 0;

  // x += y, then out = RmsNorm(x): what ends a part of a layer, and the norm that begins the next.
  // x, y f32 [R, N], the rest as for RmsNorm, but not in place.
  virtual void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) = 0;

  // out = x · wᵀ + bias, for each of the products.  x [M, K] in f32 or every w's dtype. An f32 x is
  // not rounded to w's dtype (exact to f32, slower); pass activations in w's dtype where speed
  // matters. Products in one call share what is done for x and for a call: threads are woken once,
  // and on a GPU products whose weights, biases and columns of out are neighbours are one (Joined
  // in products.h). By a slice, a reproducible implementation sums so that the ranks' results add
  // up to the bits of the whole product, in groups of 2, 4 and 8.
  virtual void MatMuls(ConstMatrix x, std::span<const Product> products) = 0;

  void MatMul(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out) {
    const Product product = {w, bias, {}, out};
    MatMuls(x, {&product, 1});
  }

  // Rows up to which a product of these dtypes is invariant, and best not cut: at least
  // kSkinnyRowsMax.
  virtual int64_t SkinnyRowsMax(DType x, DType w) const { return kSkinnyRowsMax; }

  // Rotates x in place: pairs (i, i + head_dim / 2) of every head ("rotate half").  x f32 [T, heads
  // * head_dim]; positions[t] in [0, table.max_positions).
  virtual void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) = 0;

  // Writes rows of k and v into their sequences' blocks, converting to the pool's dtype; keys are
  // rotated first, as Rope does, where `rotation` has the T rows' positions. k, v f32 [T, kv_heads
  // * head_dim]; what k holds after a rotation is not said. Rows of no span go nowhere.
  virtual void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
                       const KvLayerView& kv, const Rotation& rotation) = 0;

  // Causal attention of each sequence's rows over positions 0 … position + row (its own rows
  // already stored), or over all `keys` of its span. q f32 [T, heads * head_dim], heads a multiple
  // of kv_heads; out f32 or bf16/f16 [T, heads * head_dim]; lse f32 [T, heads] natural log-sum-exp
  // of the scaled scores, or empty when not wanted. A row that sees no key gets zeros and -inf;
  // rows of no span stay as they are.
  virtual void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences,
                              const KvLayerView& kv, float scale, Matrix out, Matrix lse) = 0;

  // (out_a, lse_a) becomes the exact merge of two partial attentions over disjoint keys.
  // out f32 [T, heads * head_dim], lse f32 [T, heads]; lse = -inf means "saw no key".
  virtual void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) = 0;

  // out = silu(gate) * up.  gate, up [T, N] f32 (column views of one product allowed), out any
  // dtype [T, N].
  virtual void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) = 0;

  // x += y.  f32 [T, N].
  virtual void Add(Matrix x, ConstMatrix y) = 0;

  // Not 0: the implementation is reproducible. Attention is then computed for every segment of so
  // many positions, whole blocks of a pool with `block_tokens`, by itself, from key 0 of a span's
  // table on, and segments are merged in their order, as MergeAttention does. So calls for one
  // segment each, merged in order, give the bits of one call for all.
  virtual int64_t KeySegment(int block_tokens) const { return 0; }

  // The host's threads that the implementation computes with, idle between its calls and then for
  // its caller to use; null: it has none of its own.
  virtual ThreadPool* HostThreads() { return nullptr; }
};

}  // namespace skein::engine
