#include "engine/cuda/attention/attention_plan.h"

#include <algorithm>
#include <cstring>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Keys that some row in [row_begin, row_end) of the span sees.
int64_t KeysOf(const DeviceSpan& span, int64_t row_end, int group) {
  return span.keys >= 0 ? span.keys : span.position + (row_end - 1) / group + 1;
}

AttentionKind KindOf(int64_t rows, int head_dim) {
  if (rows <= kAttentionRows[0]) return AttentionKind::kDecode;
  if (rows <= kAttentionRows[1] || head_dim > kWideHeadDimMax) return AttentionKind::kNarrow;
  return AttentionKind::kWide;
}

int PartsOf(const AttentionPolicy& policy, AttentionKind kind, int64_t keys, int64_t blocks) {
  const int keys_min = kind == AttentionKind::kDecode ? policy.decode_keys : policy.prefill_keys;
  const int64_t useful = std::min(CeilDivide(keys, keys_min), policy.blocks / blocks);
  return static_cast<int>(std::clamp<int64_t>(useful, 1, policy.parts_max));
}

}  // namespace

void AttentionPlan::Build(std::span<const DeviceSpan> spans, int heads, int head_dim) {
  for (auto& items : items_) items.clear();
  merges_.clear();
  partial_rows_ = 0;
  grid_ = {};
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].token_count > 0) AddSpan(static_cast<int>(i), spans[i], heads, head_dim);
  }
  SKEIN_CHECK_MSG(partial_rows_ <= INT32_MAX, "partial results: too many rows");
  for (int kind = 0; kind < kAttentionKinds; ++kind) {
    SortByKeys(&items_[kind]);
    grid_.items[kind] = static_cast<int>(items_[kind].size());
  }
  grid_.merges = static_cast<int>(merges_.size());
  Pack();
}

void AttentionPlan::AddSpan(int index, const DeviceSpan& span, int heads, int head_dim) {
  SKEIN_CHECK(span.kv_heads > 0 && heads % span.kv_heads == 0);
  const int group = heads / span.kv_heads;
  const int64_t rows = int64_t{span.token_count} * group;
  SKEIN_CHECK_MSG(KeysOf(span, rows, group) < INT32_MAX && rows < INT32_MAX, "a span is too long");
  grid_.kv_heads = std::max(grid_.kv_heads, span.kv_heads);
  const AttentionKind kind = KindOf(rows, head_dim);
  const int tile_rows = kAttentionRows[static_cast<int>(kind)];
  const int64_t blocks = CeilDivide(rows, tile_rows) * span.kv_heads;
  for (int64_t begin = 0; begin < rows; begin += tile_rows) {
    const int64_t end = std::min(rows, begin + tile_rows);
    const int64_t keys = KeysOf(span, end, group);
    AddTile(kind, {index, static_cast<int32_t>(begin), 0, static_cast<int32_t>(keys), -1, 0},
            static_cast<int>(end - begin), span.kv_heads, PartsOf(policy_, kind, keys, blocks));
  }
}

void AttentionPlan::AddTile(AttentionKind kind, const AttentionItem& whole, int rows, int kv_heads,
                            int parts) {
  std::vector<AttentionItem>& items = items_[static_cast<int>(kind)];
  const int64_t keys = whole.key_end;
  const int64_t step = CeilDivide(CeilDivide(keys, parts), kAttentionTileKeys) * kAttentionTileKeys;
  if (step >= keys) {
    items.push_back(whole);
    return;
  }
  const auto count = static_cast<int32_t>(CeilDivide(keys, step));
  merges_.push_back(
      {whole.span, whole.row_begin, rows, count, static_cast<int32_t>(partial_rows_), 0});
  for (int64_t begin = 0; begin < keys; begin += step) {
    AttentionItem part = whole;
    part.key_begin = static_cast<int32_t>(begin);
    part.key_end = static_cast<int32_t>(std::min(keys, begin + step));
    part.partial = static_cast<int32_t>(partial_rows_);
    items.push_back(part);
    partial_rows_ += int64_t{rows} * kv_heads;
  }
}

// The longest first, so that blocks that start last are short; equal ones as they came.
void AttentionPlan::SortByKeys(std::vector<AttentionItem>* items) {
  const auto tiles = [](const AttentionItem& item) {
    return static_cast<size_t>(CeilDivide(item.key_end - item.key_begin, kAttentionTileKeys));
  };
  size_t most = 0;
  for (const AttentionItem& item : *items) most = std::max(most, tiles(item));
  places_.assign(most + 2, 0);
  for (const AttentionItem& item : *items) ++places_[most - tiles(item) + 1];
  for (size_t i = 1; i < places_.size(); ++i) places_[i] += places_[i - 1];
  sorted_.resize(items->size());
  for (const AttentionItem& item : *items) {
    sorted_[static_cast<size_t>(places_[most - tiles(item)]++)] = item;
  }
  items->swap(sorted_);
}

void AttentionPlan::Pack() {
  AttentionHeader header{};
  size_t end = sizeof header;
  const auto place = [&](const auto& list, AttentionList* at) {
    *at = {static_cast<int32_t>(end), static_cast<int32_t>(list.size())};
    end += list.size() * sizeof list[0];
  };
  for (int kind = 0; kind < kAttentionKinds; ++kind) place(items_[kind], &header.items[kind]);
  place(merges_, &header.merges);
  bytes_.resize(end);
  std::memcpy(bytes_.data(), &header, sizeof header);
  const auto copy = [&](const auto& list, const AttentionList& at) {
    if (!list.empty()) std::memcpy(&bytes_[at.begin], list.data(), list.size() * sizeof list[0]);
  };
  for (int kind = 0; kind < kAttentionKinds; ++kind) copy(items_[kind], header.items[kind]);
  copy(merges_, header.merges);
}

DecodeGraphBounds BoundDecode(int spans, int heads, int kv_heads, const AttentionPolicy& policy) {
  const int group = heads / kv_heads;
  SKEIN_CHECK(kv_heads > 0 && heads % kv_heads == 0 && group <= kAttentionRows[0]);
  const int64_t parts = std::clamp<int64_t>(policy.blocks / kv_heads, 1, policy.parts_max);
  const int64_t items = spans * parts;
  DecodeGraphBounds bounds{};
  // As many blocks as are at work at once; more items than that take turns.
  bounds.grid.items[0] =
      static_cast<int>(std::min(items, CeilDivide(2 * int64_t{policy.blocks}, kv_heads)));
  bounds.grid.merges = spans;
  bounds.grid.kv_heads = kv_heads;
  bounds.partial_rows = items * heads;
  bounds.plan_bytes = sizeof(AttentionHeader) + static_cast<size_t>(items) * sizeof(AttentionItem) +
                      static_cast<size_t>(spans) * sizeof(AttentionMerge);
  return bounds;
}

}  // namespace skein::engine
