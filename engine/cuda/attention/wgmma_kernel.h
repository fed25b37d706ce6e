// The attention kernel of Hopper for wide tiles: FlashAttention-3 (Shah et al. 2024, arXiv
// 2407.08608, sections 3.1 and 3.2) over block tables. For .cu files that are compiled for 90a,
// which instantiate it for a head_dim.
//
// A block has a warpgroup that loads and two that compute, each for 64 of a tile's 128 rows. Tiles
// of 128 keys, or of their values, go through one ring of kStages places in shared memory, in the
// order in which they are used: keys 0, keys 1, values 0, keys 2, values 1, …, values n - 1. For
// each place there is an mbarrier `filled` that the loading threads arrive at, and `taken`, that
// the computing warps do. A warpgroup multiplies the queries by the keys of tile i + 1 while it
// still multiplies the weights of tile i by its values, and computes the weights of tile i + 1
// under the latter; the two warpgroups issue their products in turns, so that one's products run
// under the other's exponentials.
//
// Blocks stay: each takes items until there are no more, and loads for the next one while it
// computes this one.
//
// Keys and values come by cp.async, each 16 bytes to its place in the 128-byte swizzle, and not by
// TMA: a tensor map has one box for all copies, where layouts here have blocks of any number of
// tokens and a batch may have several layouts; and rows past the last key become zeros whatever
// lies there. cp.async writes through the generic proxy, so the thread that copied waits for it and
// fences before it arrives.
//
// Shared memory: the queries of both warpgroups, the ring, the mbarriers. A tile is kDim / 64
// panels; a panel's lines are 64 elements (128 bytes) of a row, swizzled as wgmma has it. So keys
// are K-major (lines along head_dim), and values, of which the keys are k, MN-major.
#pragma once

#include "engine/cuda/attention/flash_call.h"
#include "engine/cuda/attention/flash_rows.h"
#include "engine/cuda/attention/flash_tile.h"
#include "engine/cuda/simt/simt_hopper.h"

namespace skein::engine {

template <typename T_, int kDim_, int kStages_>
struct WgmmaShape {
  using T = T_;
  static constexpr int kDim = kDim_;        // head_dim, rounded up
  static constexpr int kStages = kStages_;  // tiles of keys or of values in shared memory

  static constexpr int kGroups = 2;  // that compute
  static constexpr int kGroupRows = 64;
  static constexpr int kRows = kGroups * kGroupRows;
  static constexpr int kKeys = 128;
  static constexpr int kThreads = (1 + kGroups) * simt::kWarpgroup;
  // Of a thread, in multiples of 8: 40 + 2 * 232 is what 168 for each of the three would be.
  static constexpr int kLoadRegisters = 40;
  static constexpr int kComputeRegisters = 232;

  static constexpr int kRowTiles = 1;          // of a warp, 16 rows each
  static constexpr int kKeyTiles = kKeys / 8;  // columns of scores, 8 each
  static constexpr int kDimTiles = kDim / 8;   // columns of the output, 8 each
  static constexpr int kPieces = kDim / 8;     // of 16 bytes in a row

  static constexpr int kLineBytes = 128;
  static constexpr int kAtomBytes = 8 * kLineBytes;
  static constexpr int kPanels = kDim / 64;
  static constexpr int kQueryPanelBytes = kGroupRows * kLineBytes;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;  // of a warpgroup
  static constexpr int kPanelBytes = kKeys * kLineBytes;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kRingBegin = kGroups * kQueryBytes;
  static constexpr int kBarriersBegin = kRingBegin + kStages * kTileBytes;
  static constexpr int kSharedBytes = kBarriersBegin + 2 * kStages * 8;

  static_assert(kRows == kAttentionRows[static_cast<int>(AttentionKind::kWide)]);
  static_assert(kDim % 64 == 0 && kKeys % kAttentionTileKeys == 0 && kStages >= 4);
};

// Byte offset of 16-byte piece `piece` of row `row` in panels of kPanelBytes.
template <int kPanelBytes>
__device__ __forceinline__ int PanelOffset(int row, int piece) {
  return piece / 8 * kPanelBytes + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
}

// Where a thread is in the ring. Both sides pass all places in order, and wait for a place's
// barrier each time they come to it.
template <typename S>
struct RingPlace {
  int place = 0;
  int round = 0;  // parity

  __device__ __forceinline__ int TileBegin() const { return S::kRingBegin + place * S::kTileBytes; }
  __device__ __forceinline__ uint64_t* Filled() const {
    return reinterpret_cast<uint64_t*>(simt::DynamicShared() + S::kBarriersBegin) + place;
  }
  __device__ __forceinline__ uint64_t* Taken() const { return Filled() + S::kStages; }
  __device__ __forceinline__ void Next() {
    if (++place < S::kStages) return;
    place = 0;
    round ^= 1;
  }
};

// A block's items: of `all` items times KV heads, the longest first, it has one in each row of
// gridDim.x; the rows are dealt there and back, so that nobody has the longest of each.
struct OwnItems {
  int all;
  int kv_heads;
  int row = 0;

  __device__ __forceinline__ OwnItems(const AttentionList& list, int kv_heads_)
      : all(list.count * kv_heads_), kv_heads(kv_heads_) {}
  __device__ __forceinline__ bool More() const { return row * static_cast<int>(gridDim.x) < all; }
  // May be `all` or more in the last row.
  __device__ __forceinline__ int Index() const {
    const int blocks = static_cast<int>(gridDim.x), own = static_cast<int>(blockIdx.x);
    return row * blocks + (row % 2 == 0 ? own : blocks - 1 - own);
  }
};

// f(item, span, kv_head) for each of the block's items.
template <typename F>
__device__ __forceinline__ void ForOwnItems(const FlashArguments& a, int kv_heads, F f) {
  const AttentionList& list = reinterpret_cast<const AttentionHeader*>(a.plan)
                                  ->items[static_cast<int>(AttentionKind::kWide)];
  for (OwnItems own(list, kv_heads); own.More(); ++own.row) {
    const int index = own.Index();
    if (index >= own.all) continue;
    const AttentionItem& item = EntryOf<AttentionItem>(a.plan, list, index / kv_heads);
    const DeviceSpan& span = a.spans[item.span];
    if (index % kv_heads < span.kv_heads) f(item, span, index % kv_heads);
  }
}

template <typename S>
__device__ __forceinline__ int TilesOf(const AttentionItem& item) {
  return (item.key_end - item.key_begin + S::kKeys - 1) / S::kKeys;
}

// The loading warpgroup. Each of its warps copies 32 rows of a tile; lane l knows where the warp's
// row l lies, looked up one tile ahead of its copy.
template <typename S>
class Loader {
 public:
  __device__ __forceinline__ explicit Loader(const FlashArguments& a)
      : pool_(static_cast<const unsigned char*>(a.pool)),
        row_bytes_(a.head_dim * 2),
        first_row_(static_cast<int>(threadIdx.x) / 32 % 4 * 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        inside_(lane_ % S::kPieces * 8 < a.head_dim) {}

  __device__ __forceinline__ void Load(const FlashArguments& a, const AttentionItem& item,
                                       const DeviceSpan& span, int kv_head) {
    const int tiles = TilesOf<S>(item);
    const KeyPlaces places = {a.tables + span.table_begin, span.block_tokens, a.pool_block_rows,
                              kv_head * span.block_tokens, item.key_end};
    const int to_values = span.kv_heads * span.block_tokens;
    int key = item.key_begin + first_row_ + lane_;
    int now = places.RowOf(key);
    int next = places.RowOf(key + S::kKeys);
    if (tiles > 0) CopyTile(now, 0);
    for (int i = 0; i < tiles; ++i) {
      key += S::kKeys;
      const int after = places.RowOf(key + S::kKeys);
      if (i + 1 < tiles) CopyTile(next, 0);
      CopyTile(now, to_values);
      now = next;
      next = after;
    }
    // What follows is another item's, which may be long in coming.
    simt::CpAsyncWait<0>();
    Publish();
  }

 private:
  // Starts the copy of a tile of the ring: of the pool's row `row + shift`, or of zeros where `row`
  // is -1. Then publishes the tile before, whose copy had that time.
  __device__ __forceinline__ void CopyTile(int row, int shift) {
    constexpr int kRowsAtOnce = 32 / S::kPieces;
    simt::MbarrierWait(at_.Taken(), at_.round ^ 1);
    // Opaque: the compiler would keep all places of all copies in registers. As a copy's first line
    // is a multiple of kRowsAtOnce, it swizzles bits that the lane's own line does not.
    const int own_line = simt::Opaque(lane_) / S::kPieces, piece = lane_ % S::kPieces;
    const int first = PanelOffset<S::kPanelBytes>(first_row_ + own_line, piece);
    unsigned char* tile = simt::DynamicShared() + at_.TileBegin();
    const unsigned char* from_piece = pool_ + piece * 16;
#pragma unroll
    for (int i = 0; i < 32; i += kRowsAtOnce) {
      const int from = __shfl_sync(simt::kAllLanes, row, i + own_line);
      const bool present = inside_ && from >= 0;
      const int64_t offset = static_cast<int64_t>(from + shift) * row_bytes_;
      simt::CpAsync16(tile + (first ^ i % 8 * 16) + i * S::kLineBytes,
                      present ? from_piece + offset : pool_, present ? 16 : 0);
    }
    simt::CpAsyncCommit();
    simt::CpAsyncWait<1>();
    Publish();
    unpublished_ = at_.Filled();
    at_.Next();
  }

  // The last tile but the one on its way has arrived: others may multiply by it.
  __device__ __forceinline__ void Publish() {
    if (unpublished_ == nullptr) return;
    simt::FenceProxyAsync();
    simt::MbarrierArrive(unpublished_);
    unpublished_ = nullptr;
  }

  const unsigned char* pool_;
  const int row_bytes_;
  const int first_row_;
  const int lane_;
  const bool inside_;
  RingPlace<S> at_;
  uint64_t* unpublished_ = nullptr;
};

// A computing warpgroup.
template <typename S>
class Computer {
 public:
  using T = typename S::T;

  __device__ __forceinline__ Computer()
      : group_(simt::Uniform(static_cast<int>(threadIdx.x) / simt::kWarpgroup - 1)),
        shared_(simt::SharedAddress(simt::DynamicShared())),
        queries_(simt::WgmmaDescriptor(shared_ + group_ * S::kQueryBytes, 16, S::kAtomBytes)) {
    if (group_ == 1) EndTurn();  // the other one is first
  }
  // Leaves no half of a turn behind.
  __device__ __forceinline__ void End() {
    if (group_ == 0) BeginTurn();
  }

  __device__ __forceinline__ void Attend(const FlashArguments& a, const AttentionItem& item,
                                         const DeviceSpan& span, int kv_head) {
    const int first_row = group_ * S::kGroupRows + static_cast<int>(threadIdx.x) / 32 % 4 * 16;
    const HeadRows where(span, a.heads, kv_head);
    LoadQueries(a, where, item.row_begin + group_ * S::kGroupRows);
    RowState<S> state;
    float sums[1][S::kDimTiles][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.largest[0][half] = __uint_as_float(0xff800000u);
      state.total[0][half] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < S::kDimTiles; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[0][d][i] = 0.0f;
    }
    const int tiles = TilesOf<S>(item);
    if (tiles > 0) {
      const int group = where.group, row = item.row_begin + first_row;
      const int seen_by_all = LimitOf(span, group, row, item.key_end);
      int key = item.key_begin;
      const auto mask = [&](float(&scores)[1][S::kKeyTiles][4]) {
        if (key + S::kKeys > seen_by_all) {
          Mask<S>(scores, key, [&](int i) { return LimitOf(span, group, row + i, item.key_end); });
        }
        key += S::kKeys;
      };
      AttendTiles(tiles, a.scale_log2, mask, &state, sums);
    }
    const Target<S> target(a, where, item, kv_head);
    StoreRows<S>(target, state, sums, first_row);
  }

 private:
  static constexpr int kTurnBarrier = 1;     // and 2: the warpgroup may issue its products
  static constexpr int kQueriesBarrier = 3;  // and 4: among a warpgroup

  __device__ __forceinline__ void BeginTurn() const {
    simt::BarrierSync(kTurnBarrier + group_, S::kGroups * simt::kWarpgroup);
  }
  __device__ __forceinline__ void EndTurn() const {
    simt::BarrierArrive(kTurnBarrier + 1 - group_, S::kGroups * simt::kWarpgroup);
  }

  __device__ __forceinline__ void LoadQueries(const FlashArguments& a, const HeadRows& where,
                                              int first_row) const {
    // All of the warpgroup's warps are through with the queries of the item before.
    simt::BarrierSync(kQueriesBarrier + group_, simt::kWarpgroup);
    if (a.q_aligned) {
      LoadAlignedQueries(a, where, first_row);
    } else {
#pragma unroll 1
      for (int i = 0; i < kQueryPieces; ++i) {
        StoreQuery(i, QueryPiece<T>(a, where, first_row + QueryLine(i), QueryColumn()));
      }
    }
    simt::FenceProxyAsync();
    simt::BarrierSync(kQueriesBarrier + group_, simt::kWarpgroup);
  }
  // Four pieces are on their way at once; what no row has is loaded from one that is there.
  __device__ __forceinline__ void LoadAlignedQueries(const FlashArguments& a, const HeadRows& where,
                                                     int first_row) const {
    constexpr int kAtOnce = 4;
    const bool inside = QueryColumn() * 8 < a.head_dim;
#pragma unroll 1
    for (int i = 0; i < kQueryPieces; i += kAtOnce) {
      EightFloats pieces[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int row = first_row + QueryLine(i + j), last = where.rows - 1;
        pieces[j] =
            LoadEight(QueryAt(a, where, row < last ? row : last, inside ? QueryColumn() : 0), true);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const bool present = inside && first_row + QueryLine(i + j) < where.rows;
        StoreQuery(i + j, present ? Round<T>(pieces[j]) : make_uint4(0, 0, 0, 0));
      }
    }
  }
  // A thread has one piece of every kQueryStep-th of the warpgroup's rows.
  static constexpr int kQueryStep = simt::kWarpgroup / S::kPieces;
  static constexpr int kQueryPieces = S::kGroupRows / kQueryStep;
  __device__ __forceinline__ static int QueryColumn() {
    return static_cast<int>(threadIdx.x) % S::kPieces;
  }
  __device__ __forceinline__ static int QueryLine(int i) {
    return i * kQueryStep + static_cast<int>(threadIdx.x) % simt::kWarpgroup / S::kPieces;
  }
  __device__ __forceinline__ void StoreQuery(int i, const uint4& piece) const {
    simt::Store(simt::DynamicShared() + group_ * S::kQueryBytes +
                    PanelOffset<S::kQueryPanelBytes>(QueryLine(i), QueryColumn()),
                piece);
  }

  // scores = queries · keysᵀ; on its way.
  __device__ __forceinline__ void IssueScores(float (&scores)[S::kKeyTiles][4]) const {
    const uint64_t keys =
        simt::WgmmaDescriptor(shared_ + simt::Uniform(at_.TileBegin()), 16, S::kAtomBytes);
#pragma unroll
    for (int k = 0; k < S::kDim / 16; ++k) {
      simt::Wgmma<T, S::kKeys>(scores,
                               simt::Advance(queries_, k / 4 * S::kQueryPanelBytes + k % 4 * 32),
                               simt::Advance(keys, k / 4 * S::kPanelBytes + k % 4 * 32), k > 0);
    }
    simt::WgmmaCommit();
  }
  // sums += weights · values; on its way.
  __device__ __forceinline__ void IssueValues(float (&sums)[S::kDimTiles][4],
                                              const uint32_t (&weights)[S::kKeyTiles / 2][4]) {
    const uint64_t values = simt::WgmmaDescriptor(shared_ + simt::Uniform(at_.TileBegin()),
                                                  S::kPanelBytes, S::kAtomBytes);
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; ++k) {
      simt::Wgmma<T, S::kDim>(sums, weights[k], simt::Advance(values, 2 * k * S::kAtomBytes), true);
    }
    simt::WgmmaCommit();
  }

  __device__ __forceinline__ void WaitForTile() const {
    simt::MbarrierWait(at_.Filled(), at_.round);
  }
  // This warp has multiplied by the tile at `place`.
  __device__ __forceinline__ static void Release(const RingPlace<S>& place) {
    if (threadIdx.x % 32 == 0) simt::MbarrierArrive(place.Taken());
  }

  template <typename MaskScores>
  __device__ __forceinline__ void AttendTiles(int tiles, float scale_log2, MaskScores mask,
                                              RowState<S>* state,
                                              float (&sums)[1][S::kDimTiles][4]) {
    float scores[1][S::kKeyTiles][4], shrink[2];
    uint32_t weights[S::kKeyTiles / 2][4];
    WaitForTile();
    simt::WgmmaFence();
    IssueScores(scores[0]);
    simt::WgmmaWait<0>();
    simt::Pin(scores[0]);
    Release(at_);
    at_.Next();
    mask(scores);
    Weigh(scores[0], scale_log2, state->largest[0], state->total[0], shrink);
    Pack<T>(scores[0], weights);
    for (int i = 1; i < tiles; ++i) {
      WaitForTile();
      BeginTurn();
      simt::WgmmaFence();
      IssueScores(scores[0]);
      const RingPlace<S> keys = at_;
      at_.Next();
      WaitForTile();
      simt::WgmmaFence();
      IssueValues(sums[0], weights);
      EndTurn();
      simt::WgmmaWait<1>();
      simt::Pin(scores[0]);
      Release(keys);
      mask(scores);
      const bool grown = Weigh(scores[0], scale_log2, state->largest[0], state->total[0], shrink);
      simt::WgmmaWait<0>();
      simt::Pin(sums[0]);
      simt::Pin(weights);
      Release(at_);
      at_.Next();
      Shrink(grown, shrink, sums[0]);
      Pack<T>(scores[0], weights);
    }
    WaitForTile();
    simt::WgmmaFence();
    IssueValues(sums[0], weights);
    simt::WgmmaWait<0>();
    simt::Pin(sums[0]);
    simt::Pin(weights);
    Release(at_);
    at_.Next();
  }

  const int group_;  // 0 or 1
  const uint32_t shared_;
  const uint64_t queries_;
  RingPlace<S> at_;
};

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    WgmmaAttentionKernel(FlashArguments a, int kv_heads) {
  if (threadIdx.x == 0) {
    RingPlace<S> at;
    for (; at.round == 0; at.Next()) {
      simt::MbarrierInit(at.Filled(), simt::kWarpgroup);
      simt::MbarrierInit(at.Taken(), S::kGroups * simt::kWarpgroup / 32);
    }
  }
  __syncthreads();
  if (threadIdx.x < simt::kWarpgroup) {
    simt::LowerRegisters<S::kLoadRegisters>();
    Loader<S> loader(a);
    ForOwnItems(a, kv_heads, [&](const AttentionItem& item, const DeviceSpan& span, int kv_head) {
      loader.Load(a, item, span, kv_head);
    });
  } else {
    simt::RaiseRegisters<S::kComputeRegisters>();
    Computer<S> computer;
    ForOwnItems(a, kv_heads, [&](const AttentionItem& item, const DeviceSpan& span, int kv_head) {
      computer.Attend(a, item, span, kv_head);
    });
    computer.End();
  }
}

template <typename S>
void LaunchWgmmaShape(const FlashArguments& arguments, const AttentionGrid& grid,
                      CudaStream stream) {
  const int items = grid.items[static_cast<int>(AttentionKind::kWide)] * grid.kv_heads;
  const int blocks = simt::Multiprocessors();
  simt::Launch(WgmmaAttentionKernel<S>, static_cast<unsigned>(items < blocks ? items : blocks),
               S::kThreads, S::kSharedBytes, stream, arguments, grid.kv_heads);
}

template <int kDim>
void LaunchWgmma(DType dtype, const FlashArguments& arguments, const AttentionGrid& grid,
                 CudaStream stream) {
  constexpr int kStages = kDim <= 64 ? 8 : 6;
  if (dtype == DType::kBF16) {
    LaunchWgmmaShape<WgmmaShape<BF16, kDim, kStages>>(arguments, grid, stream);
  } else {
    LaunchWgmmaShape<WgmmaShape<simt::Half, kDim, kStages>>(arguments, grid, stream);
  }
}

}  // namespace skein::engine
