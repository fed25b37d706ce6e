// Deal: for a prompt that several instances compute together, decides which instance computes which
// blocks, and whose copy of earlier blocks each one reads (Tetris section 4.1, figures 5 and 6).
//
// The unit is a block; global block g holds tokens [g * block_tokens, (g + 1) * block_tokens). A
// chunk longer than the step limit is cut into pieces of nearly equal size. Its members run one
// piece per step.
//
// Zigzag: the n blocks of a piece over N ranks are 2N shards of floor(n / 2N) or ceil(n / 2N)
// blocks, larger ones first. Shards i and 2N - 1 - i go to rank i, so each rank gets early tokens
// (short attention) and late tokens (long attention). Shards may be empty.
//
// The history of a piece is all blocks of earlier pieces. Until members join, an instance attends
// over the blocks it computed. Then the history is dealt again over all members, as evenly as whole
// blocks allow (counts differ by at most 1) and with the fewest moves. A move copies a block. The
// giver keeps its copy for its handoff, but no longer attends over it. An instance that still has a
// copy of a block needs no move for it.
//
// Pure and deterministic: each member computes the deal itself, and all get the same result. The
// deal of a chunk depends only on it and on earlier chunks, so chunks may be added later.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/vocabulary/token_span.h"

namespace skein::scheduler {

// Blocks that rank `from` copies to rank `to`; ascending.
struct Move {
  int from = 0;
  int to = 0;
  std::vector<int32_t> blocks;
  bool operator==(const Move&) const = default;
};

struct Piece {
  int chunk = 0;
  int index = 0;                    // within its chunk
  bool ends_chunk = false;          // the chunk's last piece
  std::vector<InstanceId> members;  // by rank
  std::vector<std::vector<TokenSpan>>
      spans;  // by rank: ascending, each starting on a block boundary
  // By rank: the blocks it attends over (after the moves), ascending. Disjoint; together all blocks
  // before the piece.
  std::vector<std::vector<int32_t>> history;
  std::vector<Move> moves;  // by (from, to)
  bool last = false;        // of the prompt
  int sampler = -1;         // rank of the prompt's last token, in the last piece
  bool operator==(const Piece&) const = default;

  int RankOf(InstanceId instance) const;  // -1: not a member
};

// The blocks that contain `spans`, in order.
std::vector<int32_t> BlocksOfSpans(const std::vector<TokenSpan>& spans, int64_t block_tokens);

struct DealtChunk {
  int64_t tokens = 0;
  std::vector<InstanceId> members;  // by rank
};

struct DealSizes {
  int64_t prompt_tokens = 0;
  int64_t block_tokens = 16;
  // Token limit of one rank in one piece; a rank gets at least one block. Equal at all members.
  int64_t rank_tokens_max = 512;
};

// A value type: a copy continues independently.
class Dealer {
 public:
  explicit Dealer(const DealSizes& sizes);  // REQUIRES: positive sizes

  // INVALID_ARGUMENT "chunks: …": no tokens, beyond the prompt, ends within a block before the
  // prompt's end, no members, a duplicate member, or a member of the previous chunk missing. Then
  // nothing is added.
  absl::Status AddChunk(const DealtChunk& chunk);

  // The next piece of the chunks added so far, in order.
  std::optional<Piece> Next();

  bool Whole() const { return added_tokens_ == sizes_.prompt_tokens; }  // all chunks are known
  int chunks() const { return static_cast<int>(chunks_.size()); }
  int64_t tokens_added() const { return added_tokens_; }
  const std::vector<DealtChunk>& all_chunks() const { return chunks_; }
  const DealSizes& sizes() const { return sizes_; }

 private:
  struct Holder {
    std::vector<int32_t> history;  // blocks attended over, ascending
    std::vector<bool> has;         // by global block: computed or received by this instance
  };

  int64_t Blocks(int64_t tokens) const;
  void EnterChunk();
  std::vector<Move> DealHistory(const std::vector<InstanceId>& members);
  std::vector<int64_t> Targets(const std::vector<InstanceId>& members) const;
  void Give(const std::vector<InstanceId>& members, int from, int to, int64_t count,
            std::vector<Move>* moves);
  std::vector<std::vector<TokenSpan>> DealSpans(int64_t first, int64_t count, int ranks) const;

  DealSizes sizes_;
  std::vector<DealtChunk> chunks_;
  int64_t added_tokens_ = 0;

  int chunk_ = -1;  // the current chunk
  int pieces_ = 0;  // number of its pieces
  int piece_ = 0;   // the next one
  int64_t next_block_ = 0;
  size_t members_before_ = 0;
  std::map<InstanceId, Holder> holders_;
};

// All pieces of a prompt, or of its chunks known so far.
absl::StatusOr<std::vector<Piece>> Deal(const DealSizes& sizes,
                                        const std::vector<DealtChunk>& chunks);

// Blocks that `instance` computes or receives in the remaining pieces. Missing chunks are assumed
// to be computed by the last chunk's members.
int64_t BlocksToFill(Dealer dealer, InstanceId instance);

}  // namespace skein::scheduler
