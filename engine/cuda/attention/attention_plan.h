// AttentionPlan: how the attention kernels share out a batch. Pure and on the host; the kernels
// read the plan from device memory, so that a captured graph follows what was copied there.
//
// The query rows of a span are its tokens' heads, the heads of one KV head together ("packed GQA"):
// row r is token r / group, head r % group of the KV head's group, and a tile of consecutive rows
// reads each key once for all of them. An item is a tile of rows over a range of keys; each KV head
// is a block of the kernel of its own. Where a span alone would leave multiprocessors idle its keys
// are split in parts (flash decoding: Dao, Haziza, Massa, Sizov 2023), each part writes a partial
// result with its log-sum-exp, and a merge item joins them.
//
// How a span is cut depends on that span and the policy alone, never on the rest of the batch (Ops
// promises that results do not either).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cuda/kernels/paged.h"

namespace skein::engine {

// Kernels by the rows of their tiles.
enum class AttentionKind : int { kDecode = 0, kNarrow = 1, kWide = 2 };
inline constexpr int kAttentionKinds = 3;
inline constexpr int kAttentionRows[kAttentionKinds] = {16, 64, 128};
// Keys that a kernel takes at a time; splits are at multiples of it.
inline constexpr int kAttentionTileKeys = 64;
// kWide is for head_dim up to this; larger ones have kNarrow instead.
inline constexpr int kWideHeadDimMax = 128;

// The kernel that computes wide tiles.
enum class WideKernel {
  kMmaSync,  // as all other tiles are, on any GPU
  kWgmma,    // Hopper's own (wgmma_kernel.h): compute capability 9.0 only
};

struct alignas(8) AttentionItem {
  int32_t span;
  int32_t row_begin;  // of the span's rows
  int32_t key_begin;
  int32_t key_end;  // no row of the tile sees a key from here on
  int32_t partial;  // -1: writes the result; else its first row in the partial results
  int32_t reserved;
};

// Parts of one tile: rows partial + (part * kv_heads + kv_head) * rows + r of the partial results.
struct alignas(8) AttentionMerge {
  int32_t span;
  int32_t row_begin;
  int32_t rows;
  int32_t parts;
  int32_t partial;
  int32_t reserved;
};

struct AttentionList {
  int32_t begin;  // bytes from the header to the first of them
  int32_t count;
};

// The layout in device memory: this, then the items and merges.
struct AttentionHeader {
  AttentionList items[kAttentionKinds];
  AttentionList merges;
};

struct AttentionPolicy {
  // Blocks that a span's work is cut into at most, and about, if its keys suffice: as many as run
  // at once, two for each of the device's multiprocessors, since one more would run alone.
  int blocks = 264;
  // Keys of a part at least: of a decode tile, and of others.
  int decode_keys = 256;
  int prefill_keys = 512;
  int parts_max = 128;
  // No part of the plan; its maker passes it on with the work (attention.h).
  WideKernel wide = WideKernel::kMmaSync;
};

// Blocks of the kernels' grids: x takes items in turn, y is the KV head. 0: not launched.
struct AttentionGrid {
  int items[kAttentionKinds] = {};
  int merges = 0;
  int kv_heads = 0;
};

class AttentionPlan {
 public:
  explicit AttentionPlan(const AttentionPolicy& policy) : policy_(policy) {}

  // For `heads` query heads; spans as PagedBatch has them. REQUIRES: each span's kv_heads divides
  // `heads`; contexts below 2^31 keys.
  void Build(std::span<const DeviceSpan> spans, int heads, int head_dim);

  // The plan as the device reads it, to be copied there, aligned to 8; valid until the next Build.
  std::span<const std::byte> bytes() const { return bytes_; }
  // One block for each item.
  const AttentionGrid& grid() const { return grid_; }
  // Partial results: ScratchBytes(…) of device memory.
  int64_t partial_rows() const { return partial_rows_; }

  std::span<const AttentionItem> items(AttentionKind kind) const {
    return items_[static_cast<int>(kind)];
  }
  std::span<const AttentionMerge> merges() const { return merges_; }

 private:
  void AddSpan(int index, const DeviceSpan& span, int heads, int head_dim);
  void AddTile(AttentionKind kind, const AttentionItem& whole, int rows, int kv_heads, int parts);
  void SortByKeys(std::vector<AttentionItem>* items);
  void Pack();

  const AttentionPolicy policy_;
  std::vector<AttentionItem> items_[kAttentionKinds];
  std::vector<AttentionMerge> merges_;
  std::vector<AttentionItem> sorted_;
  std::vector<int32_t> places_;
  std::vector<std::byte> bytes_;
  AttentionGrid grid_;
  int64_t partial_rows_ = 0;
};

// f32 [rows, head_dim] and the rows' log-sum-exps.
inline size_t AttentionScratchBytes(int64_t partial_rows, int head_dim) {
  return static_cast<size_t>(partial_rows) * static_cast<size_t>(head_dim + 1) * sizeof(float);
}

// For graphs of decode steps of up to `spans` spans of one token: a grid that serves whatever plan
// is copied to the graph's place before it is replayed, and the bounds of that plan, whatever the
// lengths are. REQUIRES: heads / kv_heads <= 16, so that every span is one decode tile.
struct DecodeGraphBounds {
  AttentionGrid grid;
  int64_t partial_rows;
  size_t plan_bytes;
};
DecodeGraphBounds BoundDecode(int spans, int heads, int kv_heads, const AttentionPolicy& policy);

}  // namespace skein::engine
