#include "engine/handoff/layout_map.h"

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

namespace {

// Into how many parts the heads are cut.
int Cuts(const KvSpec& spec, KvLayout target) { return spec.kv_heads / target.KvHeads(spec); }

}  // namespace

absl::Status CheckLayout(const KvSpec& spec, KvLayout target) {
  if (target.FitsHeads(spec)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("layout: ", spec.kv_heads, " KV heads over ", target.tp, " ranks"));
}

int64_t BlocksOfLayout(const KvSpec& spec, KvLayout target, int64_t tokens) {
  const int64_t block_tokens = target.TokensPerBlock(spec);
  return (tokens + block_tokens - 1) / block_tokens;
}

int64_t TargetBlock(const KvSpec& spec, KvLayout target, int64_t global_block) {
  return global_block / Cuts(spec, target);
}

std::vector<LayoutPiece> MapBlock(const KvSpec& spec, KvLayout target, int rank,
                                  int64_t global_block) {
  SKEIN_CHECK(rank >= 0 && rank < target.tp);
  if (target.tp == 1) return {{0, 0, spec.BlockBytes()}};
  const int64_t token_bytes = spec.head_dim * static_cast<int64_t>(BytesOf(spec.dtype));
  const int64_t run = spec.block_tokens * token_bytes;
  const int64_t target_run = target.TokensPerBlock(spec) * token_bytes;
  const int cuts = Cuts(spec, target);
  const int64_t within = global_block % cuts * run;
  const int heads = target.KvHeads(spec);
  const int first_head = rank / (target.tp / cuts) * heads;
  std::vector<LayoutPiece> pieces;
  for (int part = 0; part < 2; ++part) {
    for (int head = 0; head < heads; ++head) {
      pieces.push_back({(int64_t{part} * spec.kv_heads + first_head + head) * run,
                        (int64_t{part} * heads + head) * target_run + within, run});
    }
  }
  return pieces;
}

}  // namespace skein::engine
