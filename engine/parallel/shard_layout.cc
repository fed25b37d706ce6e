#include "engine/parallel/shard_layout.h"

#include <algorithm>
#include <string>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Part `index` of `count` things cut into `parts`, sizes differing by at most one.
ShardRange PartOf(int64_t count, int parts, int index) {
  const int64_t begin = count * index / parts;
  return {begin, count * (index + 1) / parts - begin};
}

// Part `index` where every part but the last ones has ceil(count / parts).
ShardRange PlacesOf(int64_t count, int parts, int index) {
  const int64_t places = CeilDiv(count, parts);
  const int64_t begin = std::min(count, places * index);
  return {begin, std::min(count, begin + places) - begin};
}

absl::Status Bad(const char* field, int64_t value, const std::string& range) {
  return absl::InvalidArgumentError(std::string(field) + " = " + std::to_string(value) +
                                    ": must be " + range);
}

absl::Status Check(const ShardShape& shape, GroupMode mode, int rank) {
  constexpr int kRanksMax = 1 << 12;
  for (const auto& [field, value] : {std::pair("sp", mode.sp), std::pair("tp", mode.tp)}) {
    if (value < 1 || value > kRanksMax) {
      return Bad(field, value, "from 1 to " + std::to_string(kRanksMax));
    }
  }
  const int ranks = mode.ranks();
  const std::string group = " a group of sp * tp = " + std::to_string(ranks);
  if (rank < 0 || rank >= ranks) {
    return Bad("rank", rank, "from 0 to " + std::to_string(ranks - 1) + " in" + group);
  }
  if (shape.num_heads < 1 || shape.num_heads % ranks != 0) {
    return Bad("num_heads", shape.num_heads, "a multiple of the ranks of" + group);
  }
  const int kv_heads = shape.num_kv_heads;
  if (kv_heads < 1 || shape.num_heads % kv_heads != 0) {
    return Bad("num_kv_heads", kv_heads,
               "a divisor of num_heads = " + std::to_string(shape.num_heads));
  }
  if (kv_heads % ranks != 0 && ranks % kv_heads != 0) {
    return Bad("num_kv_heads", kv_heads, "a multiple or a divisor of the ranks of" + group);
  }
  if (shape.head_dim < 1) return Bad("head_dim", shape.head_dim, "at least 1");
  if (shape.intermediate_size < mode.tp) {
    return Bad("intermediate_size", shape.intermediate_size,
               "at least tp = " + std::to_string(mode.tp));
  }
  if (shape.vocab_size < 1) return Bad("vocab_size", shape.vocab_size, "at least 1");
  return absl::OkStatus();
}

ExchangeSizes Sizes(int64_t row, const ShardLayout& layout, const std::vector<ShardRange>& tokens,
                    bool to_attention) {
  SKEIN_CHECK(static_cast<int>(tokens.size()) == layout.mode.sp);
  ExchangeSizes sizes{row, {}, {}};
  const int64_t own = tokens[static_cast<size_t>(layout.sp_rank)].count;
  for (const ShardRange& theirs : tokens) {
    sizes.send.push_back((to_attention ? own : theirs.count) * row);
    sizes.receive.push_back((to_attention ? theirs.count : own) * row);
  }
  return sizes;
}

}  // namespace

std::vector<GroupMode> ModesOf(int ranks) {
  std::vector<GroupMode> modes;
  for (int sp = 1; sp <= ranks; ++sp) {
    if (ranks % sp == 0) modes.push_back({sp, ranks / sp});
  }
  return modes;
}

ShardRange HeadsOf(const ShardShape& shape, int ranks, int rank) {
  return PartOf(shape.num_heads, ranks, rank);
}

ShardRange KvHeadsOf(const ShardShape& shape, int ranks, int rank) {
  const int64_t kv_heads = shape.num_kv_heads;
  const int64_t begin = kv_heads * rank / ranks;
  return {begin, CeilDiv(kv_heads * (rank + 1), ranks) - begin};
}

ShardRange HoldersOf(const ShardShape& shape, int ranks, int kv_head) {
  const int64_t kv_heads = shape.num_kv_heads;
  if (ranks <= kv_heads) return {kv_head * ranks / kv_heads, 1};
  const int64_t replicas = ranks / kv_heads;
  return {kv_head * replicas, replicas};
}

absl::StatusOr<ShardLayout> MakeShardLayout(const ShardShape& shape, GroupMode mode, int rank) {
  const absl::Status checked = Check(shape, mode, rank);
  if (!checked.ok()) return checked;
  ShardLayout layout{mode, rank, rank % mode.sp, rank / mode.sp};
  layout.weight_heads = HeadsOf(shape, mode.tp, layout.tp_rank);
  layout.weight_kv_heads = KvHeadsOf(shape, mode.tp, layout.tp_rank);
  layout.intermediate = PartOf(shape.intermediate_size, mode.tp, layout.tp_rank);
  layout.heads = HeadsOf(shape, mode.ranks(), rank);
  layout.kv_heads = KvHeadsOf(shape, mode.ranks(), rank);
  layout.vocabulary = PlacesOf(shape.vocab_size, mode.ranks(), rank);
  return layout;
}

std::vector<int> SpGroupOf(GroupMode mode, int rank) {
  std::vector<int> group;
  for (int s = 0; s < mode.sp; ++s) group.push_back(rank / mode.sp * mode.sp + s);
  return group;
}

std::vector<int> TpGroupOf(GroupMode mode, int rank) {
  std::vector<int> group;
  for (int t = 0; t < mode.tp; ++t) group.push_back(t * mode.sp + rank % mode.sp);
  return group;
}

std::vector<ShardRange> TokensOf(int64_t tokens, int sp) {
  std::vector<ShardRange> ranges;
  for (int s = 0; s < sp; ++s) ranges.push_back(PlacesOf(tokens, sp, s));
  return ranges;
}

ExchangeSizes ToAttention(const ShardShape& shape, const ShardLayout& layout,
                          const std::vector<ShardRange>& tokens_of) {
  const int64_t row = (layout.heads.count + 2 * layout.kv_heads.count) * shape.head_dim;
  return Sizes(row, layout, tokens_of, /*to_attention=*/true);
}

ExchangeSizes FromAttention(const ShardShape& shape, const ShardLayout& layout,
                            const std::vector<ShardRange>& tokens_of) {
  return Sizes(layout.heads.count * shape.head_dim, layout, tokens_of, /*to_attention=*/false);
}

}  // namespace skein::engine
