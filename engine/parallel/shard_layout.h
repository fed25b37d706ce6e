// ShardLayout: what each rank of a group of P computes and holds when they run one batch together.
// Pure arithmetic, after Shift Parallelism (Hidayetoglu et al., Snowflake AI Research), algorithms
// 1 and 2.
//
// A step runs in a mode (sp, tp), sp * tp = P. Its dense part is cut by tokens over sp ranks
// (Ulysses) and by weights over tp ranks; attention is always cut by heads over all P.
//
//   rank = tp_rank * sp + sp_rank          P = 8, (sp 4, tp 2):   tp_rank 0: ranks 0 1 2 3
//   SP group: the sp neighbours of one tp_rank                     tp_rank 1: ranks 4 5 6 7
//   TP group: one rank of each SP group, sp apart                  TP groups: 0 4, 1 5, 2 6, 3 7
//
// Head order. KV written in one mode is read in every other one, so a rank must attend with the
// same heads in all modes of its P. A tp_rank multiplies by the weights of heads [tp_rank * h / tp,
// + h / tp); the all-to-all of its SP group deals them out in order of sp_rank: sp_rank s gets
// heads tp_rank * h / tp + s * h / P, which with the ranks numbered as above is rank * h / P. That
// is the order of full TP (1, P), and of every other factorisation: any two modes share one KV
// layout, and a step may choose its mode freely. (The paper numbers ranks the other way round, TP
// groups being neighbours; then (3, 2) orders six heads 0 2 4 1 3 5 and full TP has to be permuted
// to follow it, section 3.3.1.)
//
// KV heads. With no more ranks than KV heads each rank holds kv_heads / P neighbours. With more,
// P / kv_heads neighbouring ranks hold the same head, the one that their query heads use. Under SP
// a rank has only its own tokens, so it cannot recompute what a replica needs (full TP does); keys
// and values reach every replica in the all-to-all itself: the sender gives each rank that rank's
// heads, one that several need several times. Algorithm 1 does it as an all-to-all of the first
// replicas and an all-gather among them, because its all-to-all has equal shares; every rank
// receives the same bytes either way, and here queries, keys and values go in one collective.
//
// Tokens. A batch of n tokens is padded to sp * ceil(n / sp) places; sp_rank s has the places [s *
// ceil(n / sp), …). The padding, at the end of the batch, exists as places only: nothing is
// computed, sent or stored for it, and the last ranks just have fewer tokens, or none.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::engine {

// How a step is cut. {1, P} is tensor parallelism, {P, 1} sequence parallelism.
struct GroupMode {
  int sp = 1;
  int tp = 1;

  int ranks() const { return sp * tp; }
  bool operator==(const GroupMode&) const = default;
};

// All modes of so many ranks, by sp.
std::vector<GroupMode> ModesOf(int ranks);

// [begin, begin + count)
struct ShardRange {
  int64_t begin = 0;
  int64_t count = 0;

  int64_t end() const { return begin + count; }
  bool operator==(const ShardRange&) const = default;
};

// The part of a model's shape that matters here.
struct ShardShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int intermediate_size = 0;
  int vocab_size = 0;
};

// One rank's share of a model in one mode. Heads are numbered as in the checkpoint; head i is rows
// [i * head_dim, + head_dim) of q, k or v's matrix and the same columns of o's.
struct ShardLayout {
  GroupMode mode;
  int rank = 0;
  int sp_rank = 0;  // = the rank within the SP group
  int tp_rank = 0;  // = the rank within the TP group

  // The heads of the weights, by tp_rank. With tp > kv_heads neighbours multiply by the same KV
  // heads; where tp and kv_heads do not divide one another, a range begins and ends at the heads
  // that are needed.
  ShardRange weight_heads;
  ShardRange weight_kv_heads;
  ShardRange intermediate;  // rows of gate and up, columns of down; sizes differ by at most one
  // The heads in attention and in the KV, by rank: the same in every mode of as many ranks.
  ShardRange heads;
  ShardRange kv_heads;
  // The rows of lm_head, by rank: ceil(vocab / P) each, and fewer for the last ranks.
  ShardRange vocabulary;

  // Biases of o and down, which every tp_rank's partial sum would add once more, are this rank's.
  bool adds_output_bias() const { return tp_rank == 0; }
};

// INVALID_ARGUMENT names field and value: sp or tp below 1, a rank outside the group, num_heads
// that P does not divide, num_kv_heads that neither divides P nor is divided by it.
absl::StatusOr<ShardLayout> MakeShardLayout(const ShardShape& shape, GroupMode mode, int rank);

// Heads that `rank` of `ranks` attends with and holds; of KV heads all that its query heads touch.
ShardRange HeadsOf(const ShardShape& shape, int ranks, int rank);
ShardRange KvHeadsOf(const ShardShape& shape, int ranks, int rank);
// The ranks that hold a KV head, the first of which may speak for all.
ShardRange HoldersOf(const ShardShape& shape, int ranks, int kv_head);

// Ranks of the two groups, in the order of their own ranks.
std::vector<int> SpGroupOf(GroupMode mode, int rank);
std::vector<int> TpGroupOf(GroupMode mode, int rank);

// Tokens of each sp_rank, in order; they cover [0, tokens).
std::vector<ShardRange> TokensOf(int64_t tokens, int sp);

// Elements that move between this rank and each rank of its SP group (its own share included),
// given tokens_of[s] = the tokens of sp_rank s. A token is one row of (heads + 2 kv_heads) *
// head_dim on the way to attention and of heads * head_dim on the way back; counts of heads are the
// same at all ranks.
struct ExchangeSizes {
  int64_t row = 0;
  std::vector<int64_t> send;
  std::vector<int64_t> receive;
};
ExchangeSizes ToAttention(const ShardShape& shape, const ShardLayout& layout,
                          const std::vector<ShardRange>& tokens_of);
ExchangeSizes FromAttention(const ShardShape& shape, const ShardLayout& layout,
                            const std::vector<ShardRange>& tokens_of);

}  // namespace skein::engine
