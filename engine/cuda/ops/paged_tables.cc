#include "engine/cuda/ops/paged_tables.h"

namespace skein::engine {
namespace {

int64_t KeysOf(const SequenceSpan& s) { return s.keys >= 0 ? s.keys : s.position + s.token_count; }

}  // namespace

void PagedTables::Build(std::span<const SequenceSpan> sequences, const KvSpec& spec) {
  spans_.clear();
  ids_.clear();
  rows_ = 0;
  for (const SequenceSpan& s : sequences) {
    const int tokens = TokensPerBlock(s.layout, spec);
    const auto count = static_cast<int32_t>(s.token_count);
    spans_.push_back({s.token_begin, s.position, s.keys, count, rows_,
                      static_cast<int32_t>(ids_.size()), tokens, KvHeads(s.layout, spec), 0});
    const auto blocks = (KeysOf(s) + tokens - 1) / tokens;
    ids_.insert(ids_.end(), s.block_table.begin(), s.block_table.begin() + blocks);
    rows_ += count;
  }
}

}  // namespace skein::engine
